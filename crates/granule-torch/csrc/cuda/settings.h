#pragma once

namespace granule_torch {

// From now on every settings text that PyTorch takes at run time reaches Granule, too. Does nothing the second time.
void follow_settings();

} // namespace granule_torch
