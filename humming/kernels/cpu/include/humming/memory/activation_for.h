// Which form of x a config's product multiplies with.
// Run by the compiler.
// Reads Config's constants.
// Technique: none.
#pragma once

#include "humming/memory/activation.h"
#include "humming/memory/quantized_activation.h"

namespace humming {

template <class Config, bool quantizes_x>
struct ActivationChoice {
  using type = Activation<Config>;
};
template <class Config>
struct ActivationChoice<Config, true> {
  using type = QuantizedActivation<Config>;
};
template <class Config>
using ActivationFor = typename ActivationChoice<Config, Config::Product::quantizes_x>::type;

}  // namespace humming
