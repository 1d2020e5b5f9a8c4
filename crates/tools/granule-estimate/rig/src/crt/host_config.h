// Stands in for the toolkit's header of this name; see host_defines.h. It checks the host compiler's version for nvcc.
#pragma once
