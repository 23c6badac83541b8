/* SPDX-License-Identifier: Apache-2.0 */
/* maths_values.c - double functions of the runtime on pairs of doubles from standard input. */
#include <stdio.h>
#include <string.h>

#include "raot/math64.h"

static double value_of(const char *name, double x, double y)
{
    static const struct {
        const char *name;
        double (*run)(double x);
    } functions[] = {
        {"sin", raot_sin},   {"cos", raot_cos},   {"tan", raot_tan},     {"exp", raot_exp},
        {"log", raot_log},   {"log2", raot_log2}, {"log1p", raot_log1p}, {"expm1", raot_expm1},
        {"asin", raot_asin}, {"acos", raot_acos}, {"atan", raot_atan},   {"tanh", raot_tanh},
        {"erf", raot_erf},
    };

    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(name, functions[i].name) == 0) {
            return functions[i].run(x);
        }
    }
    return raot_pow(x, y);
}

int main(int count, char **arguments)
{
    double pair[2];

    while (count == 2 && fread(pair, sizeof pair, 1, stdin) == 1) {
        const double value = value_of(arguments[1], pair[0], pair[1]);
        fwrite(&value, sizeof value, 1, stdout);
    }
    return 0;
}
