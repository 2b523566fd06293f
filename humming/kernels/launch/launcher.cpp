// What may live here: enqueueing launches that were recorded, with this call's addresses in them. No kernels, no policy.
// Who runs it: one thread of the host, at each call of a layer on a GPU; many threads at once may share one Call.
// Reads -> writes: a Call that Python laid out (jit/cuda/launcher.py) -> launches on a stream, by CUDA's driver.
// Source: CUDA's driver API; its structs are written down here, as nothing of CUDA need be installed to compile this.
#include <cstdint>
#include <cstring>

namespace humming {

constexpr int kBases = 4;    // x, out, workspace, words that are zero between launches
constexpr int kValues = 24;  // arguments of a kernel
constexpr int kMaps = 4;     // tensor maps of a call
constexpr int kAttributes = 4;
constexpr int kConstant = -1, kMap = -2;  // else the number of a base
constexpr int kUneven = -1;

struct Config {  // CUlaunchConfig
  uint32_t grid[3], block[3], smem_bytes;
  uint64_t stream;
  const void* attributes;
  uint32_t attribute_count;
};

struct Attribute {  // CUlaunchAttribute
  uint64_t bytes[9];
};

struct Map {
  alignas(64) uint64_t opaque[16];  // CUtensorMap, encoded
  int32_t base;                     // kConstant where it is encoded already
  uint32_t element, rank, swizzle, promotion;
  uint32_t box[2], steps[2];
  uint64_t offset, shape[2], row_bytes;
};

struct Step {
  uint64_t function;
  uint32_t grid[3], block[3], smem_bytes;
  uint32_t attribute_count;
  Attribute attributes[kAttributes];
  int32_t count;
  int32_t kind[kValues];
  uint64_t
      value[kValues];  // the argument, or how far behind its base it lies, or the number of its map
};

struct Call {
  uint64_t calls;
  const Map* maps;
  const Step* steps;
  uint64_t context;
  uint64_t launch, encode, current, push, pop;  // functions of the driver
  int32_t step_count, map_count, alignment;
};

using Launch = int (*)(const Config*, uint64_t, void**, void**);
using Encode = int (*)(void*, uint32_t, uint32_t, uint64_t, const uint64_t*, const uint64_t*,
                       const uint32_t*, const uint32_t*, uint32_t, uint32_t, uint32_t, uint32_t);
using Current = int (*)(uint64_t*);
using Push = int (*)(uint64_t);
using Pop = int (*)(uint64_t*);

static int encode_maps(const Call& call, const uint64_t* bases, Map* maps) {
  for (int i = 0; i < call.map_count; i++) {
    const Map& map = call.maps[i];
    if (map.base == kConstant) {
      std::memcpy(maps[i].opaque, map.opaque, sizeof map.opaque);
      continue;
    }
    int error = reinterpret_cast<Encode>(call.encode)(
        maps[i].opaque, map.element, map.rank, bases[map.base] + map.offset, map.shape,
        &map.row_bytes, map.box, map.steps, 0, map.swizzle, map.promotion, 0);
    if (error) return error;
  }
  return 0;
}

static int enqueue(const Call& call, const Step& step, const uint64_t* bases, Map* maps,
                   uint64_t stream) {
  uint64_t values[kValues];
  void* arguments[kValues];
  for (int i = 0; i < step.count; i++) {
    int kind = step.kind[i];
    values[i] = step.value[i] + (kind >= 0 ? bases[kind] : 0);
    arguments[i] = kind == kMap ? static_cast<void*>(maps[step.value[i]].opaque) : &values[i];
  }
  Config config;
  std::memcpy(config.grid, step.grid, sizeof step.grid);
  std::memcpy(config.block, step.block, sizeof step.block);
  config.smem_bytes = step.smem_bytes;
  config.stream = stream;
  config.attributes = step.attributes;
  config.attribute_count = step.attribute_count;
  return reinterpret_cast<Launch>(call.launch)(&config, step.function, arguments, nullptr);
}

static int enqueue_all(const Call& call, const uint64_t* bases, uint64_t stream) {
  Map maps[kMaps];
  int error = encode_maps(call, bases, maps);
  for (int i = 0; i < call.step_count && !error; i++)
    error = enqueue(call, call.steps[i], bases, maps, stream);
  return error;
}

}  // namespace humming

// How large the structs are, so that a mirror of them that differs is found out.
extern "C" void humming_layout(uint64_t* bytes) {
  bytes[0] = sizeof(humming::Call);
  bytes[1] = sizeof(humming::Step);
  bytes[2] = sizeof(humming::Map);
}

// 0, or why nothing was enqueued: kUneven, or the driver's error.
extern "C" int humming_launch(humming::Call* call, uint64_t x, uint64_t out, uint64_t workspace,
                              uint64_t words, uint64_t stream) {
  using namespace humming;
  if (x % static_cast<uint64_t>(call->alignment)) return kUneven;
  const uint64_t bases[kBases] = {x, out, workspace, words};
  uint64_t current = 0, popped = 0;
  reinterpret_cast<Current>(call->current)(&current);
  bool foreign =
      current != call->context;  // a thread that CUDA has not seen yet, or another current GPU
  if (foreign) {
    int error = reinterpret_cast<Push>(call->push)(call->context);
    if (error) return error;
  }
  int error = enqueue_all(*call, bases, stream);
  if (foreign) reinterpret_cast<Pop>(call->pop)(&popped);
  if (!error) __atomic_fetch_add(&call->calls, 1, __ATOMIC_RELAXED);
  return error;
}
