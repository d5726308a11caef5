// Memory for packed weights in huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace octavo {

// `bytes` at a 64-byte boundary, uninitialised. Small matrices lie one after another in slabs of huge pages:
// a walk through many of them (the experts of a layer) would miss in the TLB at every 4 KiB otherwise. A slab
// goes back when the last matrix in it does. Throws std::bad_alloc.
std::shared_ptr<uint8_t> weight_memory(size_t bytes);

}  // namespace octavo
