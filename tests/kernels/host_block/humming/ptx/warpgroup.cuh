// Warpgroups are no business of these tests.
#pragma once
#include "humming/ptx/types.cuh"
