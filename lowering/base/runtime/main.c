/* Runs the model on tensors from files:
 *
 *   eqfuse_example INPUT... OUTPUT... [--repeat N] [--threads N] [--weights FILE]
 *
 * One file per input and per output in the order of eqfuse_model.h: .npy, or any other name for the bare elements of a
 * tensor whose shape the model fixes. --weights maps weights.bin in place of the weights in the library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eqfuse_model.h"

#define MOST_AXES 64

typedef struct {
    int64_t shape[MOST_AXES];
    size_t bytes;
    void *data;
} tensor;

#define REFUSED 3 /* the exit code if the model does not run on these shapes of the inputs */

static void complain(const char *path, const char *problem, int code) {
    fprintf(stderr, "error: %s: %s\n", path, problem);
    exit(code);
}

static void fail(const char *path, const char *problem) { complain(path, problem, 1); }

static int is_npy(const char *path) {
    size_t length = strlen(path);
    return length > 4 && !strcmp(path + length - 4, ".npy");
}

/* Aligned memory costs no copy in eqfuse_run. */
static void *allocate(size_t bytes) {
    void *memory = aligned_alloc(EQFUSE_ALIGNMENT, (bytes / EQFUSE_ALIGNMENT + 1) * EQFUSE_ALIGNMENT);
    if (!memory) fail("memory", "exhausted");
    return memory;
}

/* "<f4" takes 4 bytes. */
static size_t element_bytes(const eqfuse_tensor_info *info) { return (size_t)atoi(info->dtype + 2); }

static size_t bytes_of(const eqfuse_tensor_info *info, const int64_t *shape) {
    size_t bytes = element_bytes(info);
    for (size_t axis = 0; axis < info->rank; axis++) bytes *= (size_t)shape[axis];
    return bytes;
}

/* The header of a .npy file of format 1.0, padded to a multiple of 64 bytes (numpy.lib.format). */
static int write_header(char *text, size_t size, const eqfuse_tensor_info *info, const int64_t *shape) {
    int used = snprintf(text, size, "{'descr': '%s', 'fortran_order': False, 'shape': (", info->dtype);
    for (size_t i = 0; i < info->rank; i++)
        used += snprintf(text + used, size - (size_t)used, "%ld,%s", (long)shape[i], i + 1 < info->rank ? " " : "");
    used += snprintf(text + used, size - (size_t)used, "), }");
    int padded = (10 + used + 1 + 63) / 64 * 64 - 10;
    memset(text + used, ' ', (size_t)(padded - used));
    text[padded - 1] = '\n';
    return padded;
}

/* Leaves the file at the first element. A tensor of a shape that the model fixes may come in another shape of as many. */
static void read_header(FILE *file, const char *path, const eqfuse_tensor_info *info, int64_t *shape) {
    unsigned char start[10];
    char text[4096], dtype[32];
    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY\x01", 7)) fail(path, "not a .npy file of format 1");
    size_t length = start[8] | (size_t)start[9] << 8;
    if (length >= sizeof text || fread(text, 1, length, file) != length) fail(path, "a .npy header that is cut short");
    text[length] = 0;
    snprintf(dtype, sizeof dtype, "'%s'", info->dtype);
    if (!strstr(text, dtype)) fail(path, "elements of another type than the model's input");
    if (!strstr(text, "'fortran_order': False")) fail(path, "column by column; save it row by row");
    char *extent = strstr(text, "'shape': (");
    if (info->bytes || !extent) return;
    extent += strlen("'shape': (");
    for (size_t axis = 0; axis < info->rank; axis++, extent += strspn(extent, ", ")) {
        if (*extent == ')') fail(path, "fewer axes than the model's input");
        shape[axis] = strtoll(extent, &extent, 10);
    }
    if (*extent != ')') fail(path, "more axes than the model's input");
}

static void read_tensor(const char *path, const eqfuse_tensor_info *info, tensor *read) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path, "cannot be read");
    for (size_t axis = 0; axis < info->rank; axis++) read->shape[axis] = info->shape[axis];
    if (is_npy(path)) read_header(file, path, info, read->shape);
    for (size_t axis = 0; axis < info->rank; axis++)
        if (read->shape[axis] < 0) fail(path, "has no shape; name an .npy file");
    read->bytes = bytes_of(info, read->shape);
    read->data = allocate(read->bytes);
    if (fread(read->data, 1, read->bytes, file) != read->bytes || fgetc(file) != EOF) fail(path, "not the size of the input");
    fclose(file);
}

static void write_tensor(const char *path, const eqfuse_tensor_info *info, const int64_t *shape, const void *data) {
    char header[4096];
    FILE *file = fopen(path, "wb");
    if (!file) fail(path, "cannot be written");
    if (is_npy(path)) {
        int length = write_header(header, sizeof header, info, shape);
        unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, length & 255, (unsigned char)(length >> 8)};
        fwrite(start, 1, 10, file);
        fwrite(header, 1, (size_t)length, file);
    }
    size_t bytes = bytes_of(info, shape);
    if (fwrite(data, 1, bytes, file) != bytes || fclose(file)) fail(path, "cannot be written");
}

int main(int count, char **arguments) {
    enum { FILES = EQFUSE_INPUTS + EQFUSE_OUTPUTS };
    static tensor inputs[EQFUSE_INPUTS];
    const int64_t *shapes[EQFUSE_INPUTS];
    const void *given[EQFUSE_INPUTS];
    void *taken[EQFUSE_OUTPUTS];
    const char *mapped = NULL;
    int repeat = 1, threads = 1, is_usage = count < FILES + 1 || (count - FILES) % 2 == 0;
    for (int i = FILES + 1; i + 1 < count && !is_usage; i += 2) {
        if (!strcmp(arguments[i], "--repeat")) is_usage = (repeat = atoi(arguments[i + 1])) < 1;
        else if (!strcmp(arguments[i], "--threads")) is_usage = (threads = atoi(arguments[i + 1])) < 1;
        else if (!strcmp(arguments[i], "--weights")) mapped = arguments[i + 1];
        else is_usage = 1;
    }
    if (is_usage) {
        const char *usage = "usage: %s with %d input and %d output files [--repeat N] [--threads N] [--weights FILE]\n";
        fprintf(stderr, usage, arguments[0], EQFUSE_INPUTS, EQFUSE_OUTPUTS);
        return 2;
    }
    const void *weights = mapped ? eqfuse_map(mapped, EQFUSE_WEIGHT_BYTES) : EQFUSE_EMBEDDED_WEIGHTS;
    if (mapped && !weights) fail("weights", eqfuse_message());
    eqfuse_context *context = eqfuse_create(&eqfuse_network, weights, threads);
    if (!context) fail("model", eqfuse_message());
    for (int i = 0; i < EQFUSE_INPUTS; i++) {
        read_tensor(arguments[1 + i], &eqfuse_network.inputs[i], &inputs[i]);
        shapes[i] = inputs[i].shape, given[i] = inputs[i].data;
    }
    if (eqfuse_set_shapes(context, shapes)) complain("model", eqfuse_message(), REFUSED);
    for (int i = 0; i < EQFUSE_OUTPUTS; i++) {
        size_t bytes = eqfuse_output_bytes(context, i);
        taken[i] = bytes == EQFUSE_UNBOUNDED ? NULL : allocate(bytes);
    }
    for (int run = 1; run <= repeat; run++) {
        if (run == repeat) EQFUSE_MARK(EQFUSE_RESET); /* counts are of the last run */
        int status = eqfuse_run(context, given, taken);
        if (status) complain("model", eqfuse_message(), status == EQFUSE_REFUSED ? REFUSED : 1);
    }
    for (int i = 0; i < EQFUSE_OUTPUTS; i++) {
        const int64_t *shape = eqfuse_output_shape(context, i);
        const void *content = taken[i] ? taken[i] : eqfuse_output(context, i);
        write_tensor(arguments[1 + EQFUSE_INPUTS + i], &eqfuse_network.outputs[i], shape, content);
    }
    eqfuse_destroy(context);
    for (int i = 0; i < EQFUSE_INPUTS; i++) free(inputs[i].data);
    for (int i = 0; i < EQFUSE_OUTPUTS; i++) free(taken[i]);
    if (mapped) eqfuse_unmap(weights, EQFUSE_WEIGHT_BYTES);
    return 0;
}
