/*
 * gesture_config.h - the greatest sizes that gesture accepts.
 *
 * Change a literal here, or give -D for the whole project: every size, every offset and
 * the arena follow. All files of a program must see the same values.
 */
#ifndef GESTURE_CONFIG_H
#define GESTURE_CONFIG_H

/* n: input motion, axis 0, 1..9 */
#ifndef GESTURE_N_MAX
#define GESTURE_N_MAX 9
#endif

#endif
