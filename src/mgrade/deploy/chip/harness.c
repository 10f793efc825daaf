/* Runs a model on an emulated Cortex-M: start-up, then its steps one by one, then a report.

   Files in the emulator's working folder (through semihosting), all little-endian:
     inputs.bin    header of 5 words, see `struct header`, then steps x MODEL_INPUTS values of MODEL_input
     outputs.bin   steps x MODEL_OUTPUTS values of MODEL_output
     ticks.bin     steps words: ticks of the counter during each step
     report.bin    one `struct report`
   The build defines MODEL_HEADER, MODEL_INPUTS, MODEL_OUTPUTS, MODEL_input, MODEL_output, MODEL_state, MODEL_init,
   MODEL_step, and BOARD_MPS2 or BOARD_MPS3. The harness does not use the C library: sections.ld counts what is linked
   of it as the model's. */
#include <stddef.h>
#include <stdint.h>

#include MODEL_HEADER

/* ---- The host ---------------------------------------------------------------------------------------------------- */

enum { HOST_OPEN = 0x01, HOST_WRITE = 0x05, HOST_READ = 0x06, HOST_EXIT = 0x20 };
enum { MODE_READ = 1, MODE_WRITE = 5 };                                              /* "rb", "wb" */
enum { DONE = 0, FAULT = 101, MISMATCH = 102, NO_FILE = 103, WRAPPED = 104 };        /* exit statuses; see emulate.py */

static uint32_t host(uint32_t operation, const void *arguments) {
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void __attribute__((noreturn)) leave(uint32_t status) {
    const uint32_t arguments[2] = {0x20026 /* application exit */, status};
    for (;;) host(HOST_EXIT, arguments);
}

static uint32_t open_file(const char *path, uint32_t length, uint32_t mode) {
    const uint32_t arguments[3] = {(uint32_t)path, mode, length};
    const uint32_t handle = host(HOST_OPEN, arguments);
    if (handle == UINT32_MAX) leave(NO_FILE);
    return handle;
}
#define OPEN(path, mode) open_file(path, sizeof path - 1, mode)

static void transfer(uint32_t operation, uint32_t handle, const void *data, uint32_t bytes) {
    const uint32_t arguments[3] = {handle, (uint32_t)data, bytes};
    if (bytes && host(operation, arguments)) leave(NO_FILE); /* returns how many bytes are left */
}

/* ---- The counter: follows the emulated clock, which advances equally with every instruction ---------------------- */

#define REGISTER(address) (*(volatile uint32_t *)(address))

#ifdef BOARD_MPS2 /* CMSDK timer 0: 32 bits, counts down, raises a flag at zero */
#define COUNTER "0x40000004"
static void counter_start(void) {
    REGISTER(0x40000000) = 0;
    REGISTER(0x40000008) = UINT32_MAX;
    REGISTER(0x40000004) = UINT32_MAX;
    REGISTER(0x4000000C) = 1;
    REGISTER(0x40000000) = 1 | 8;
}
static uint32_t counter_wrapped(void) { return REGISTER(0x4000000C); }
#define ADVANCED "rsb r0, r7, r6"
#else /* BOARD_MPS3: the system counter, 64 bits, counts up */
#define COUNTER "0x58101000"
static void counter_start(void) {
    REGISTER(0x58100000) = 0;
    REGISTER(0x58100008) = 0;
    REGISTER(0x5810000C) = 0;
    REGISTER(0x58100000) = 1;
}
static uint32_t counter_wrapped(void) { return REGISTER(0x58101004); }
#define ADVANCED "sub r0, r7, r6"
#endif

/* ---- Counted calls on a separate stack --------------------------------------------------------------------------- */

extern uint32_t stack_begin[], stack_end[];
typedef void step_function(MODEL_state *, const MODEL_input *, MODEL_output *);

/* Calls function(state, input, output) on the empty process stack; returns the ticks that it took. The instructions
   around the call are the same for every function; calling `empty` measures them. */
__attribute__((naked, noinline)) static uint32_t counted(step_function *function __attribute__((unused)),
                                                         MODEL_state *state __attribute__((unused)),
                                                         const MODEL_input *input __attribute__((unused)),
                                                         MODEL_output *output __attribute__((unused))) {
    __asm__("push {r4-r7, lr}\n"
            "mov r4, r0\n"
            "mov r0, r1\n"
            "mov r1, r2\n"
            "mov r2, r3\n"
            "ldr r3, =stack_end\n"
            "msr psp, r3\n"
            "mrs r3, control\n"
            "orr r3, r3, #2\n"
            "msr control, r3\n"
            "isb\n"
            "ldr r5, =" COUNTER "\n"
            "ldr r6, [r5]\n"
            "blx r4\n"
            "ldr r7, [r5]\n"
            "mrs r3, control\n"
            "bic r3, r3, #2\n"
            "msr control, r3\n"
            "isb\n" ADVANCED "\n"
            "pop {r4-r7, pc}\n"
            ".ltorg\n");
}

__attribute__((naked, noinline)) static void empty(void) { __asm__("bx lr"); } /* 1 instruction */

__attribute__((naked, noinline)) static void loop(void) { /* 2 + 2 x 5000 instructions */
    __asm__("movw r0, #5000\n"
            "1: subs r0, r0, #1\n"
            "bne 1b\n"
            "bx lr");
}

/* How much of the pattern a step overwrites tells how deep its stack went. */
#define PATTERN 0x5AA5C33Cu

static void stack_paint(void) {
    for (uint32_t *word = stack_begin; word < stack_end; word++) *word = PATTERN;
}

static uint32_t stack_used(void) {
    uint32_t *word = stack_begin;
    while (word < stack_end && *word == PATTERN) word++;
    return (uint32_t)(stack_end - word) * 4;
}

/* ---- Report ------------------------------------------------------------------------------------------------------ */

/* The letter of a type in NumPy, where a number of bytes follows it. */
#define LETTER(type)                                                                                               \
    _Generic((type)0, float: 'f', double: 'f', unsigned char: 'u', unsigned short: 'u', unsigned: 'u',             \
             unsigned long: 'u', signed char: 'i', short: 'i', int: 'i', long: 'i')

struct header {
    uint32_t letter, bytes, inputs, steps;
    uint32_t length; /* steps of a sequence; the state is initialised before each */
};

extern uint8_t code_bytes[], constant_bytes[], static_bytes[]; /* their addresses are the sizes; see sections.ld */

static struct report { /* mirrored in emulate.py */
    uint32_t input_letter, input_bytes, inputs, output_letter, output_bytes, outputs;
    uint32_t state_bytes, stack_bytes, code_bytes, constant_bytes, static_bytes;
    uint32_t empty_ticks, loop_ticks;
    uint32_t step, fault_status, fault_address, fault_code; /* the current step; the last three only after a fault */
} report;

static void __attribute__((noreturn)) finish(uint32_t status) {
    report.input_letter = LETTER(MODEL_input);
    report.input_bytes = sizeof(MODEL_input);
    report.inputs = MODEL_INPUTS;
    report.output_letter = LETTER(MODEL_output);
    report.output_bytes = sizeof(MODEL_output);
    report.outputs = MODEL_OUTPUTS;
    report.state_bytes = sizeof(MODEL_state);
    report.stack_bytes = stack_used();
    report.code_bytes = (uint32_t)code_bytes;
    report.constant_bytes = (uint32_t)constant_bytes;
    report.static_bytes = (uint32_t)static_bytes;
    transfer(HOST_WRITE, OPEN("report.bin", MODE_WRITE), &report, sizeof report);
    leave(status);
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

enum {
    INPUT_BYTES = MODEL_INPUTS * sizeof(MODEL_input),
    OUTPUT_BYTES = MODEL_OUTPUTS * sizeof(MODEL_output),
    AT_ONCE = 1 + 16384 / (INPUT_BYTES + OUTPUT_BYTES) /* steps between two transfers */
};

static MODEL_state state;
static MODEL_input input[AT_ONCE * MODEL_INPUTS];
static MODEL_output output[AT_ONCE * MODEL_OUTPUTS];
static uint32_t ticks[AT_ONCE];

static uint32_t ticks_of(step_function *function, const MODEL_input *from, MODEL_output *to) {
    counter_start();
    const uint32_t advanced = counted(function, &state, from, to);
    if (counter_wrapped()) finish(WRAPPED);
    return advanced;
}

static void __attribute__((noreturn)) run(void) {
    struct header header;
    const uint32_t from = OPEN("inputs.bin", MODE_READ);
    transfer(HOST_READ, from, &header, sizeof header);
    if (header.letter != LETTER(MODEL_input) || header.bytes != sizeof(MODEL_input) || header.inputs != MODEL_INPUTS)
        finish(MISMATCH);
    const uint32_t to = OPEN("outputs.bin", MODE_WRITE), times = OPEN("ticks.bin", MODE_WRITE);

    report.empty_ticks = ticks_of((step_function *)(void *)empty, input, output);
    report.loop_ticks = ticks_of((step_function *)(void *)loop, input, output);
    stack_paint();
    for (uint32_t byte = 0; byte < sizeof state; byte++) ((volatile uint8_t *)&state)[byte] = 0xA5; /* init clears it */

    for (uint32_t first = 0; first < header.steps; first += AT_ONCE) {
        const uint32_t left = header.steps - first, count = left < AT_ONCE ? left : AT_ONCE;
        transfer(HOST_READ, from, input, count * INPUT_BYTES);
        for (uint32_t k = 0; k < count; k++) {
            report.step = first + k;
            if (report.step % header.length == 0) MODEL_init(&state);
            ticks[k] = ticks_of(MODEL_step, input + k * MODEL_INPUTS, output + k * MODEL_OUTPUTS);
        }
        transfer(HOST_WRITE, to, output, count * OUTPUT_BYTES);
        transfer(HOST_WRITE, times, ticks, count * sizeof ticks[0]);
    }
    finish(DONE);
}

/* ---- Start-up and faults ----------------------------------------------------------------------------------------- */

extern uint32_t data_begin[], data_end[], data_load[], bss_begin[], bss_end[], main_stack_end[];

void __attribute__((noreturn)) reset(void);
void reset(void) {
    REGISTER(0xE000ED88) |= 0xFu << 20; /* the FPU, and the vector unit where there is one */
    __asm__ volatile("dsb\nisb");
#ifdef BOARD_MPS2 /* the MPU traps writes to reserved addresses below the stack, which QEMU would allow */
    REGISTER(0xE000ED98) = 0;
    REGISTER(0xE000ED9C) = 0x10000000;
    REGISTER(0xE000EDA0) = 1u << 28 | 27u << 1 | 1; /* 2^28 bytes, no access */
    REGISTER(0xE000ED94) = 1 | 4;                   /* everything else unrestricted */
    __asm__ volatile("dsb\nisb");
#endif
    const uint32_t *source = data_load;
    for (uint32_t *word = data_begin; word < data_end; word++) *word = *source++;
    for (uint32_t *word = bss_begin; word < bss_end; word++) *word = 0;
    run();
}

enum { STACKING_FAILED = 1u << 4 | 1u << 12 | 1u << 20 };

__attribute__((noreturn, used)) static void report_fault(const uint32_t *frame) {
    const uint32_t status = REGISTER(0xE000ED28);
    report.fault_status = status;
    report.fault_address = REGISTER(status & 0x80 ? 0xE000ED34 : 0xE000ED38); /* MMFAR or BFAR */
    report.fault_code = status & STACKING_FAILED ? 0 : frame[6];              /* the pushed program counter */
    finish(FAULT);
}

__attribute__((naked)) static void fault(void) {
    __asm__("tst lr, #4\n"
            "ite eq\n"
            "mrseq r0, msp\n"
            "mrsne r0, psp\n"
            "b report_fault");
}

__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*handlers[15])(void);
} vectors = {main_stack_end, {reset, [1 ... 14] = fault}};
