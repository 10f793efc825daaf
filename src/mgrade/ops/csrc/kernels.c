/* Every kernel, once in float and once in double. */

#include "common.h"

#define REAL float
#define NAME(x) x##_f32
#define EXP exp_f32
#include "delay_kernel.h"
#include "diagonal_scan.h"
#include "fir.h"
#include "gated_scan.h"
#include "product.h"
#include "feedforward.h"
#include "layer_step.h"
#undef REAL
#undef NAME
#undef EXP

#define REAL double
#define NAME(x) x##_f64
#define EXP exp_f64
#include "delay_kernel.h"
#include "diagonal_scan.h"
#include "fir.h"
#include "gated_scan.h"
#include "product.h"
#include "feedforward.h"
#include "layer_step.h"
