/* The header is C, too. */
#include <include/openreg.h>

#include <string.h>

int main(void) {
  char there[4] = "abc", back[4] = {0};
  void* device = NULL;
  orStream_t stream = NULL;
  orPointerAttributes found;
  struct orPointerAttributes same;
  orError_t ended = orErrorUnknown;
  if (sizeof found != 16 || sizeof same != 16 || sizeof(orError_t) != 4) return 1;
  if (orMalloc(&device, 4) != orSuccess || orStreamCreate(&stream) != orSuccess) return 2;
  if (orPointerGetAttributes(&found, device) != orSuccess || found.type != orMemoryTypeDevice) return 3;
  if (orMemcpyAsync(device, there, 4, orMemcpyHostToDevice, stream) != orSuccess) return 4;
  if (orStreamSynchronize(stream) != orSuccess) return 5;
  if (orMemcpy(back, device, 4, orMemcpyDeviceToHost) != orSuccess || strcmp(back, there) != 0) return 6;
  ended = orStreamDestroy(stream);
  return ended == orSuccess && orFree(device) == orSuccess ? 0 : 7;
}
