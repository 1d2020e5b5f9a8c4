#pragma once

#include <string>

#include "granule.h"

namespace granule_torch {

// From now on every settings text that PyTorch takes at run time reaches Granule, too. Does nothing the second time.
void follow_settings();

// Changes settings of a running allocator, and of its pinned memory.
void change_settings(granule_allocator* granule, const std::string& text);

} // namespace granule_torch
