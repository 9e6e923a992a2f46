/* A QEMU TCG plugin that counts what a 64-bit Arm program executes and simulates its data caches.
 *
 * Arguments (-plugin eqfuse_counts.so,out=FILE,cache=SIZE:WAYS:LINE,cache=...): the file for the report, and the caches
 * from the first level outwards (at most 4; least recently used line out, allocate on reads and writes, no prefetcher).
 *
 * The program marks regions with an instruction that does nothing, "movz xzr, #REGION": from there on everything
 * executed, in whatever function, belongs to that region. Region 0 is what lies outside, and where a run starts;
 * RESET forgets all counts so far but keeps the contents of the caches.
 *
 * Report: one line per region that executed anything, "REGION COUNTER..." in the order of the header line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_plugin_api.h"

enum counter {
    INSTRUCTIONS,  /* all */
    FUSED,         /* vector fused multiply-adds */
    MULTIPLY_ADDS, /* what the fused multiply-adds compute: lanes, 1 for scalar ones */
    VECTOR,        /* every other SIMD or floating-point instruction */
    LOADS,
    STORES,
    BRANCHES,
    OTHER,
    STACK,         /* loads and stores of vector registers relative to the stack pointer: mostly spills */
    MISSES         /* at this index: of the first level; the others follow */
};
#define LEVELS 4
#define COUNTERS (MISSES + LEVELS)
#define REGIONS 65536
#define RESET 65535

static const char *const header = "region instructions fused multiply_adds vector loads stores branches other stack";

struct cache {
    uint64_t sets, ways, shift;
    uint64_t *lines; /* sets x ways, the most recently used first; 0 is empty, a line is stored plus 1 */
};

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static struct cache caches[LEVELS];
static int levels;
static char *report_path;
static uint64_t now[COUNTERS], before[COUNTERS];
static uint64_t (*regions)[COUNTERS];
static uint64_t current;

/* ---- caches ---- */

static bool add_cache(const char *text) {
    unsigned long long size, ways, line;
    if (levels == LEVELS || sscanf(text, "%llu:%llu:%llu", &size, &ways, &line) != 3) return false;
    if (!ways || !line || (line & (line - 1)) || size < ways * line) return false;
    struct cache *cache = &caches[levels++];
    *cache = (struct cache){size / (ways * line), ways, (uint64_t)__builtin_ctzll(line), NULL};
    cache->lines = calloc(cache->sets * ways, sizeof *cache->lines);
    return cache->lines != NULL;
}

/* Whether the cache held the line; it does afterwards, as the most recently used one. */
static bool touch(struct cache *cache, uint64_t address) {
    uint64_t line = (address >> cache->shift) + 1;
    uint64_t *set = cache->lines + (line - 1) % cache->sets * cache->ways;
    uint64_t way = 0;
    while (way < cache->ways - 1 && set[way] != line) way++;
    bool hit = set[way] == line;
    memmove(set + 1, set, way * sizeof *set);
    set[0] = line;
    return hit;
}

/* A hit in an inner level is not seen by the outer ones. */
static void on_access(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data) {
    (void)cpu, (void)data;
    uint64_t last = address + (1ULL << qemu_plugin_mem_size_shift(info)) - 1;
    uint64_t step = 1ULL << caches[0].shift;
    for (address &= ~(step - 1); address <= last; address += step)
        for (int level = 0; level < levels && !touch(&caches[level], address); level++) now[MISSES + level]++;
}

/* ---- regions ---- */

static void close_region(void) {
    for (int i = 0; i < COUNTERS; i++) regions[current][i] += now[i] - before[i];
    memcpy(before, now, sizeof now);
}

static void on_mark(unsigned int cpu, void *data) {
    (void)cpu;
    close_region();
    current = (uintptr_t)data;
    if (current == RESET) {
        memset(regions, 0, REGIONS * sizeof *regions);
        current = 0;
    }
}

/* ---- instruction classes: Arm Architecture Reference Manual, C4.1 "A64 instruction set encoding" ---- */

static bool is_mark(uint32_t code) { return (code & 0xFFE0001F) == 0xD280001F; } /* movz xzr, #immediate */

/* Multiply-adds that a fused multiply-add or multiply-subtract computes, 0 for any other instruction. */
static uint64_t fused_lanes(uint32_t code) {
    uint64_t registers = code >> 30 & 1 ? 2 : 1; /* Q: 128 bits, else 64 */
    bool wide = code >> 22 & 1;                  /* double precision */
    if ((code & 0xBF20FC00) == 0x0E20CC00) return wide ? registers : 2 * registers; /* FMLA, FMLS (vector) */
    if ((code & 0xBF60FC00) == 0x0E400C00) return 4 * registers;                    /* the same, half precision */
    if ((code & 0xBF80B400) == 0x0F801000) return wide ? registers : 2 * registers; /* FMLA, FMLS (by element) */
    if ((code & 0xBFC0B400) == 0x0F001000) return 4 * registers;                    /* the same, half precision */
    if ((code & 0xFF80B400) == 0x5F801000) return 1;                                /* the same, scalar by element */
    if ((code & 0xFF000000) == 0x1F000000) return 1;                                /* FMADD and its variants (scalar) */
    return 0;
}

static bool is_store(uint32_t code) {
    bool vector = code >> 26 & 1;
    uint32_t form = code >> 28 & 3, opc = code >> 22 & 3;
    if (form == 1) return code >> 24 & 1 && opc == 0;                            /* else a literal, which loads */
    if (form != 3) return !(opc & 1);                                            /* structures, exclusives, pairs */
    if (!(code >> 24 & 1) && (code >> 21 & 1) && !(code >> 10 & 3)) return false; /* atomic operations load too */
    return vector ? !(opc & 1) : opc == 0;
}

static bool is_memory(uint32_t code) { return (code & 0x0A000000) == 0x08000000; }

static enum counter class_of(uint32_t code) {
    if (is_memory(code)) return is_store(code) ? STORES : LOADS;
    if ((code & 0x0E000000) == 0x0E000000) return fused_lanes(code) > 1 ? FUSED : VECTOR;
    if ((code & 0x1C000000) == 0x14000000) return (code & 0xFF000000) == 0xD5000000 ? OTHER : BRANCHES;
    return OTHER;
}

static void add(struct qemu_plugin_insn *instruction, enum counter counter, uint64_t amount) {
    qemu_plugin_register_vcpu_insn_exec_inline(instruction, QEMU_PLUGIN_INLINE_ADD_U64, &now[counter], amount);
}

static void on_instruction(struct qemu_plugin_insn *instruction) {
    uint32_t code;
    memcpy(&code, qemu_plugin_insn_data(instruction), sizeof code);
    if (is_mark(code)) {
        void *region = (void *)(uintptr_t)(code >> 5 & 0xFFFF);
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_mark, QEMU_PLUGIN_CB_NO_REGS, region);
        return;
    }
    enum counter class = class_of(code);
    add(instruction, INSTRUCTIONS, 1);
    add(instruction, class, 1);
    if ((class == FUSED || class == VECTOR) && fused_lanes(code)) add(instruction, MULTIPLY_ADDS, fused_lanes(code));
    if (class != LOADS && class != STORES) return;
    if ((code >> 26 & 1) && (code >> 5 & 31) == 31) add(instruction, STACK, 1);
    if (levels)
        qemu_plugin_register_vcpu_mem_cb(instruction, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) on_instruction(qemu_plugin_tb_get_insn(block, i));
}

/* ---- report ---- */

static void on_exit_report(qemu_plugin_id_t id, void *data) {
    (void)id, (void)data;
    close_region();
    FILE *file = fopen(report_path, "w");
    if (!file) return;
    fputs(header, file);
    for (int level = 1; level <= levels; level++) fprintf(file, " misses%d", level);
    for (int region = 0; region < REGIONS; region++) {
        if (!regions[region][INSTRUCTIONS]) continue;
        fprintf(file, "\n%d", region);
        for (int i = 0; i < MISSES + levels; i++) fprintf(file, " %llu", (unsigned long long)regions[region][i]);
    }
    fputc('\n', file);
    fclose(file);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    if (strcmp(info->target_name, "aarch64") || info->system_emulation) return -1;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "out=", 4)) report_path = strdup(argv[i] + 4);
        else if (strncmp(argv[i], "cache=", 6) || !add_cache(argv[i] + 6)) return -1;
    }
    regions = calloc(REGIONS, sizeof *regions);
    if (!report_path || !regions) return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit_report, NULL);
    return 0;
}
