#pragma once

// What the Python package finds by name.
#define GRANULE_TORCH_API extern "C" __attribute__((visibility("default")))
