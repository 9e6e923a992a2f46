/* What compiled kernels need at run time, and what a generated model is made of. Plain C11, no other library.
 * The structures have the layouts of DLPack (DLTensor) and of TVM's foreign function interface (TVMFFIAny). */
#ifndef EQFUSE_RUNTIME_H
#define EQFUSE_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define EQFUSE_ALIGNMENT 64

typedef struct {
    void *data;
    struct {
        int32_t type, index;
    } device;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    const int64_t *shape, *strides;
    uint64_t byte_offset;
} eqfuse_tensor;

typedef struct {
    int32_t type_index;
    uint32_t padding;
    void *pointer;
} eqfuse_argument;

#define EQFUSE_CPU 1
#define EQFUSE_TENSOR_ARGUMENT 7

/* A compiled kernel: 0, or not 0 after it reported what is wrong. */
typedef int (*eqfuse_kernel)(void *self, const eqfuse_argument *arguments, int32_t count, eqfuse_argument *result);

/* An input or output of the model, as in a .npy file: row by row, `dtype` such as "<f4". */
typedef struct {
    const char *name, *dtype;
    size_t rank;
    const int64_t *shape;
    size_t bytes;
} eqfuse_tensor_info;

/* Counts under emulation (a program built with EQFUSE_EMULATION): what runs from here on belongs to this region. An
 * instruction that does nothing, which only the counting plugin notices. Region 0 is outside of all kernels. */
#define EQFUSE_RESET 65535
#if defined(EQFUSE_EMULATION) && defined(__aarch64__)
#define EQFUSE_MARK(region) __asm__ volatile(".inst %c0" ::"i"(0xD280001Fu | (unsigned)(region) << 5) : "memory")
#else
#define EQFUSE_MARK(region) ((void)0)
#endif

#endif
