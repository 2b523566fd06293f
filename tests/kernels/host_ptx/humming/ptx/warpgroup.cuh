// Nothing multiplies matrices on the host.
#pragma once
