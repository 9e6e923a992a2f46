/* Runs the model on tensors from files:  eqfuse_example INPUT... OUTPUT... [--repeat N]
 * One file per input and per output in the order of eqfuse_model.h: .npy, or any other name for the bare elements. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eqfuse_model.h"

static void fail(const char *path, const char *problem) {
    fprintf(stderr, "error: %s: %s\n", path, problem);
    exit(1);
}

static int is_npy(const char *path) {
    size_t length = strlen(path);
    return length > 4 && !strcmp(path + length - 4, ".npy");
}

static void *allocate(size_t bytes) {
    void *memory = aligned_alloc(EQFUSE_ALIGNMENT, (bytes + EQFUSE_ALIGNMENT - 1) / EQFUSE_ALIGNMENT * EQFUSE_ALIGNMENT);
    if (!memory) fail("memory", "exhausted");
    return memory;
}

/* The header of a .npy file of format 1.0, padded to a multiple of 64 bytes (numpy.lib.format). */
static int npy_header(char *text, size_t size, const eqfuse_tensor_info *info) {
    int used = snprintf(text, size, "{'descr': '%s', 'fortran_order': False, 'shape': (", info->dtype);
    for (size_t i = 0; i < info->rank; i++)
        used += snprintf(text + used, size - used, "%lld,%s", (long long)info->shape[i], i + 1 < info->rank ? " " : "");
    used += snprintf(text + used, size - used, "), }");
    int padded = (10 + used + 1 + 63) / 64 * 64 - 10;
    memset(text + used, ' ', padded - used);
    text[padded - 1] = '\n';
    return padded;
}

/* Leaves the file at the first element. Shapes are not compared: a reshaped tensor has the same bytes. */
static void skip_npy_header(FILE *file, const char *path, const eqfuse_tensor_info *info) {
    unsigned char start[10];
    char text[4096], dtype[32];
    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY\x01", 7)) fail(path, "not a .npy file of format 1");
    size_t length = start[8] | (size_t)start[9] << 8;
    if (length >= sizeof text || fread(text, 1, length, file) != length) fail(path, "a .npy header that is cut short");
    text[length] = 0;
    snprintf(dtype, sizeof dtype, "'%s'", info->dtype);
    if (!strstr(text, dtype)) fail(path, "elements of another type than the model's input");
    if (!strstr(text, "'fortran_order': False")) fail(path, "column by column; save it row by row");
}

static void *read_tensor(const char *path, const eqfuse_tensor_info *info) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path, "cannot be read");
    if (is_npy(path)) skip_npy_header(file, path, info);
    void *data = allocate(info->bytes);
    if (fread(data, 1, info->bytes, file) != info->bytes || fgetc(file) != EOF) fail(path, "not the size of the input");
    fclose(file);
    return data;
}

static void write_tensor(const char *path, const eqfuse_tensor_info *info, const void *data) {
    char header[4096];
    FILE *file = fopen(path, "wb");
    if (!file) fail(path, "cannot be written");
    if (is_npy(path)) {
        int length = npy_header(header, sizeof header, info);
        unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, length & 255, length >> 8};
        fwrite(start, 1, 10, file);
        fwrite(header, 1, length, file);
    }
    if (fwrite(data, 1, info->bytes, file) != info->bytes || fclose(file)) fail(path, "cannot be written");
}

int main(int count, char **arguments) {
    const void *inputs[EQFUSE_INPUTS];
    void *outputs[EQFUSE_OUTPUTS];
    int files = EQFUSE_INPUTS + EQFUSE_OUTPUTS, repeat = 1;
    if (count == files + 3 && !strcmp(arguments[files + 1], "--repeat")) repeat = atoi(arguments[files + 2]);
    else if (count != files + 1) repeat = 0;
    if (repeat < 1) {
        fprintf(stderr, "usage: %s with %d input and %d output files [--repeat N]\n", arguments[0], EQFUSE_INPUTS, EQFUSE_OUTPUTS);
        return 2;
    }
    for (int i = 0; i < EQFUSE_INPUTS; i++) inputs[i] = read_tensor(arguments[1 + i], &eqfuse_inputs[i]);
    for (int i = 0; i < EQFUSE_OUTPUTS; i++) outputs[i] = allocate(eqfuse_outputs[i].bytes);
    for (int run = 1; run <= repeat; run++) {
        if (run == repeat) EQFUSE_MARK(EQFUSE_RESET); /* counts are of the last run */
        int status = eqfuse_run(inputs, outputs);
        if (status) {
            fprintf(stderr, "error: eqfuse_run returned %d\n", status);
            return 1;
        }
    }
    for (int i = 0; i < EQFUSE_OUTPUTS; i++)
        write_tensor(arguments[1 + EQFUSE_INPUTS + i], &eqfuse_outputs[i], outputs[i]);
    return 0;
}
