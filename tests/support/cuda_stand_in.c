/* A CUDA driver for tests on machines without a GPU: "device memory" is POSIX shared memory, an IPC
 * handle is the name of its object, padded with zeros. Built and loaded by tests/support/cuda.py.
 *
 * What a real driver checks and a program can get wrong is checked here too: a call without a
 * current context is refused, a pointer that is not mapped is refused, an opened handle is counted.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID_VALUE = 1, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };
enum { DEVICES = 2, MAPPINGS = 2048, HANDLE = 64 };

typedef struct {
    char name[HANDLE];
} Handle;

typedef struct {
    Handle handle;
    char *address;
    size_t size;
    int opened;
} Mapping;

static Mapping mappings[MAPPINGS];
static _Thread_local void *current;
static char contexts[DEVICES];

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }

int cuDeviceGetCount(int *count) {
    *count = DEVICES;
    return OK;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal < 0 || ordinal >= DEVICES ? INVALID_DEVICE : OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &contexts[device];
    return OK;
}

int cuCtxSetCurrent(void *context) {
    current = context;
    return OK;
}

static Mapping *around(uint64_t pointer, size_t size) {
    for (int i = 0; i < MAPPINGS; i++) {
        uint64_t begin = (uint64_t)mappings[i].address;
        if (mappings[i].opened && pointer >= begin && size <= mappings[i].size &&
            pointer - begin <= mappings[i].size - size)
            return &mappings[i];
    }
    return NULL;
}

static Mapping *of_handle(const Handle *handle) {
    Mapping *empty = NULL;
    for (int i = 0; i < MAPPINGS; i++) {
        if (mappings[i].opened && !memcmp(&mappings[i].handle, handle, sizeof *handle))
            return &mappings[i];
        if (!mappings[i].opened && !empty)
            empty = &mappings[i];
    }
    return empty;
}

int cuIpcOpenMemHandle_v2(uint64_t *pointer, Handle handle, unsigned flags) {
    Mapping *mapping = of_handle(&handle);
    if (!current)
        return INVALID_CONTEXT;
    if (flags != 1 || !mapping || handle.name[HANDLE - 1])
        return INVALID_VALUE;
    if (!mapping->opened) {
        struct stat found;
        int file = shm_open(handle.name, O_RDWR, 0);
        if (file < 0 || fstat(file, &found))
            return INVALID_VALUE;
        mapping->size = (size_t)found.st_size;
        mapping->address =
            mmap(NULL, mapping->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (mapping->address == MAP_FAILED)
            return INVALID_VALUE;
        mapping->handle = handle;
    }
    mapping->opened++;
    *pointer = (uint64_t)mapping->address;
    return OK;
}

int cuIpcCloseMemHandle(uint64_t pointer) {
    Mapping *mapping = around(pointer, 1);
    if (!current)
        return INVALID_CONTEXT;
    if (!mapping || (char *)pointer != mapping->address)
        return INVALID_VALUE;
    if (!--mapping->opened)
        munmap(mapping->address, mapping->size);
    return OK;
}

int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t pointer) {
    Mapping *mapping = around(pointer, 1);
    if (!current)
        return INVALID_CONTEXT;
    if (!mapping)
        return INVALID_VALUE;
    *base = (uint64_t)mapping->address;
    *size = mapping->size;
    return OK;
}

static int copy(uint64_t device, void *to, const void *from, size_t size) {
    if (!current)
        return INVALID_CONTEXT;
    if (!around(device, size))
        return INVALID_VALUE;
    memcpy(to, from, size);
    return OK;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    return copy(from, to, (const void *)from, size);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    return copy(to, (void *)to, from, size);
}

int cuGetErrorString(int code, const char **text) {
    switch (code) {
    case INVALID_VALUE: *text = "invalid argument"; return OK;
    case INVALID_DEVICE: *text = "invalid device ordinal"; return OK;
    case INVALID_CONTEXT: *text = "invalid device context"; return OK;
    }
    return INVALID_VALUE;
}
