/* Runs the model on tensors from files:  eqfuse_example INPUT... OUTPUT... [--repeat N] [--threads N]
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
    void *memory = aligned_alloc(EQFUSE_ALIGNMENT, (bytes / EQFUSE_ALIGNMENT + 1) * EQFUSE_ALIGNMENT);
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

/* The number behind an option that may be among the last arguments; 1 where it is not there, 0 where it is none. */
static int option(int count, char **arguments, int files, const char *name) {
    for (int i = files + 1; i + 1 < count; i += 2)
        if (!strcmp(arguments[i], name)) return atoi(arguments[i + 1]) > 0 ? atoi(arguments[i + 1]) : 0;
    return 1;
}

int main(int count, char **arguments) {
    const void *inputs[EQFUSE_INPUTS];
    void *outputs[EQFUSE_OUTPUTS];
    int files = EQFUSE_INPUTS + EQFUSE_OUTPUTS;
    int repeat = option(count, arguments, files, "--repeat"), threads = option(count, arguments, files, "--threads");
    if (count < files + 1 || (count - files) % 2 == 0 || !repeat || !threads) {
        const char *usage = "usage: %s with %d input and %d output files [--repeat N] [--threads N]\n";
        fprintf(stderr, usage, arguments[0], EQFUSE_INPUTS, EQFUSE_OUTPUTS);
        return 2;
    }
    for (int i = 0; i < EQFUSE_INPUTS; i++) inputs[i] = read_tensor(arguments[1 + i], &eqfuse_network.inputs[i]);
    for (int i = 0; i < EQFUSE_OUTPUTS; i++) outputs[i] = allocate(eqfuse_network.outputs[i].bytes);
    eqfuse_context *context = eqfuse_create(&eqfuse_network, eqfuse_weights, threads);
    if (!context) fail("model", eqfuse_message());
    for (int run = 1; run <= repeat; run++) {
        if (run == repeat) EQFUSE_MARK(EQFUSE_RESET); /* counts are of the last run */
        if (eqfuse_run(context, inputs, outputs)) fail("model", eqfuse_message());
    }
    eqfuse_destroy(context);
    for (int i = 0; i < EQFUSE_INPUTS; i++) free((void *)inputs[i]);
    for (int i = 0; i < EQFUSE_OUTPUTS; i++) {
        write_tensor(arguments[1 + EQFUSE_INPUTS + i], &eqfuse_network.outputs[i], outputs[i]);
        free(outputs[i]);
    }
    return 0;
}
