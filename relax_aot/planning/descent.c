/* SPDX-License-Identifier: Apache-2.0 */
/* The inner search of the memory planner: one depth-first descent within a capacity.
 *
 * The same algorithm, move for move, as descent.py, where it is explained; a test compares them.
 * Built and loaded by engine.py. All arithmetic is exact: the caller keeps sums below 2^62.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { EXHAUSTED = 0, FOUND = 1, STOPPED = 2, NO_MEMORY = 3 };

#define WEIGHT_BASE 100
#define NOTHING INT64_MAX

struct descent {
    int32_t blocks;
    int32_t sections;
    const int32_t *start; /* first section of a block */
    const int32_t *stop;  /* one past its last section */
    const int64_t *size;
    const int32_t *rank; /* smaller is tried first */
    int64_t capacity;
    int64_t nodes;   /* in: how many may be opened; out: how many were left */
    int64_t work;    /* in: how much may be done; out: how much was left */
    int64_t *weight; /* of each section: how often it ended a branch; kept between calls */
    int64_t *offset; /* out, where FOUND */
};

int descend(struct descent *d);

struct change {
    int32_t place;
    int64_t old;
};

struct frame {
    int32_t from, to;    /* its blocks are ids[from .. to) */
    int32_t left, right; /* its sections */
    int32_t dirty_left, dirty_right;
    int32_t section; /* where it branches; -1: a list of independent parts */
    int64_t level;
    size_t mark;       /* of the trail */
    size_t first, end; /* its options, or parts */
    size_t next;
};

struct part {
    int32_t from, to, left, right;
};

struct stack {
    char *items;
    size_t count, room;
};

struct search {
    struct descent *d;
    int32_t *ids;
    int32_t *scratch;
    int64_t *state; /* floor of each section, lowest place of each block, top of each section */
    int64_t *floor, *low, *top;
    int64_t *least;
    int32_t *count, *run_left, *run_right, *part_of;
    struct stack trail, frames, options, parts;
};

static void *push(struct stack *stack, size_t bytes)
{
    if ((stack->count + 1) * bytes > stack->room) {
        const size_t room = stack->room * 2 + 64 * bytes;
        char *items = realloc(stack->items, room);
        if (items == NULL) {
            return NULL;
        }
        stack->items = items;
        stack->room = room;
    }
    return stack->items + bytes * stack->count++;
}

static int set(struct search *s, int64_t *place, int64_t value)
{
    struct change *change = push(&s->trail, sizeof *change);
    if (change == NULL) {
        return 0;
    }
    change->place = (int32_t)(place - s->state);
    change->old = *place;
    *place = value;
    return 1;
}

static void undo(struct search *s, size_t mark)
{
    const struct change *changes = (const struct change *)(void *)s->trail.items;
    while (s->trail.count > mark) {
        s->trail.count--;
        s->state[changes[s->trail.count].place] = changes[s->trail.count].old;
    }
}

static int32_t max32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t min32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Raise lowest places and floors until they agree, then bound each section that changed. */
static int propagate(struct search *s, const struct frame *f)
{
    struct descent *d = s->d;
    int32_t left = f->dirty_left;
    int32_t right = f->dirty_right;
    int32_t all_left = left;
    int32_t all_right = right;
    while (left < right) {
        int32_t wide_left = left;
        int32_t wide_right = right;
        d->work -= f->to - f->from;
        for (int32_t i = f->from; i < f->to; i++) {
            const int32_t b = s->ids[i];
            if (d->start[b] >= right || d->stop[b] <= left) {
                continue;
            }
            int64_t low = s->low[b];
            for (int32_t x = max32(d->start[b], left); x < min32(d->stop[b], right); x++) {
                low = s->floor[x] > low ? s->floor[x] : low;
            }
            d->work -= d->stop[b] - d->start[b];
            if (low > s->low[b]) {
                if (!set(s, &s->low[b], low)) {
                    return NO_MEMORY;
                }
                wide_left = min32(wide_left, d->start[b]);
                wide_right = max32(wide_right, d->stop[b]);
            }
        }
        all_left = min32(all_left, wide_left);
        all_right = max32(all_right, wide_right);
        for (int32_t x = wide_left; x < wide_right; x++) {
            s->least[x] = NOTHING;
        }
        for (int32_t i = f->from; i < f->to; i++) {
            const int32_t b = s->ids[i];
            const int64_t low = s->low[b];
            for (int32_t x = max32(d->start[b], wide_left); x < min32(d->stop[b], wide_right);
                 x++) {
                s->least[x] = low < s->least[x] ? low : s->least[x];
            }
        }
        left = wide_right;
        right = wide_left;
        for (int32_t x = wide_left; x < wide_right; x++) {
            if (s->least[x] != NOTHING && s->least[x] > s->floor[x]) {
                if (!set(s, &s->floor[x], s->least[x])) {
                    return NO_MEMORY;
                }
                left = min32(left, x);
                right = max32(right, x + 1);
            }
        }
    }
    for (int32_t i = f->from + 1; i < f->to; i++) {
        const int32_t b = s->ids[i];
        int32_t j = i;
        while (j > f->from) {
            const int32_t c = s->ids[j - 1];
            if (s->low[c] < s->low[b] || (s->low[c] == s->low[b] && c < b)) {
                break;
            }
            s->ids[j] = c;
            j--;
        }
        s->ids[j] = b;
    }
    for (int32_t x = all_left; x < all_right; x++) {
        s->least[x] = 0;
    }
    for (int32_t i = f->from; i < f->to; i++) {
        const int32_t b = s->ids[i];
        for (int32_t x = max32(d->start[b], all_left); x < min32(d->stop[b], all_right); x++) {
            const int64_t from = s->least[x] > s->low[b] ? s->least[x] : s->low[b];
            s->least[x] = from + d->size[b];
            if (s->least[x] > d->capacity) {
                d->weight[x]++;
                return EXHAUSTED;
            }
        }
    }
    for (int32_t x = all_left; x < all_right; x++) {
        if (s->least[x] != s->top[x] && !set(s, &s->top[x], s->least[x])) {
            return NO_MEMORY;
        }
    }
    return FOUND;
}

static int is_option(const struct search *s, int32_t b)
{
    const int32_t x = s->d->start[b];
    return s->run_left[x] >= 0 && s->d->stop[b] <= s->run_right[x] && s->low[b] == s->floor[x];
}

/* Choose the section to branch on, and list what may stand there. */
static int branch(struct search *s, struct frame *f)
{
    struct descent *d = s->d;
    for (int32_t x = f->left; x < f->right;) {
        int32_t end = x;
        while (end < f->right && s->floor[end] == s->floor[x]) {
            end++;
        }
        const int valley = (x == f->left || s->floor[x - 1] > s->floor[x]) &&
                           (end == f->right || s->floor[end] > s->floor[x]);
        const int32_t begin = x;
        for (; x < end; x++) {
            s->count[x] = 0;
            s->run_left[x] = valley ? begin : -1;
            s->run_right[x] = end;
        }
    }
    d->work -= f->right - f->left;
    d->work -= f->to - f->from;
    for (int32_t i = f->from; i < f->to; i++) {
        const int32_t b = s->ids[i];
        if (is_option(s, b)) {
            d->work -= d->stop[b] - d->start[b];
            for (int32_t x = d->start[b]; x < d->stop[b]; x++) {
                s->count[x]++;
            }
        }
    }
    int32_t best = -1;
    int64_t cost = 0;
    int64_t share = 1;
    for (int32_t x = f->left; x < f->right; x++) {
        if (s->run_left[x] >= 0 && s->count[x] > 0) {
            const int64_t new_cost = 2 * (int64_t)s->count[x] + (s->top[x] < d->capacity);
            const int64_t new_share = WEIGHT_BASE + d->weight[x];
            if (best < 0 || new_cost * share < cost * new_share) {
                best = x;
                cost = new_cost;
                share = new_share;
            }
        }
    }
    if (best < 0) {
        return EXHAUSTED;
    }
    f->section = best;
    f->level = s->floor[best];
    f->mark = s->trail.count;
    f->first = s->options.count;
    f->next = f->first;
    for (int32_t i = f->from; i < f->to; i++) {
        const int32_t b = s->ids[i];
        if (d->start[b] <= best && best < d->stop[b] && is_option(s, b)) {
            if (push(&s->options, sizeof(int32_t)) == NULL) {
                return NO_MEMORY;
            }
            int32_t *options = (int32_t *)(void *)s->options.items;
            size_t j = s->options.count - 1;
            while (j > f->first && d->rank[options[j - 1]] > d->rank[b]) {
                options[j] = options[j - 1];
                j--;
            }
            options[j] = b;
        }
    }
    f->end = s->options.count;
    return FOUND;
}

static int open_node(struct search *s, struct frame *f)
{
    if (s->d->nodes <= 0 || s->d->work <= 0) {
        return STOPPED;
    }
    s->d->nodes--;
    const int result = propagate(s, f);
    return result == FOUND ? branch(s, f) : result;
}

/* What is left may fall into parts that share no section: open them one after the other. */
static int open_parts(struct search *s, struct frame *f)
{
    const struct descent *d = s->d;
    const int32_t count = f->to - f->from;
    for (int32_t x = f->left; x < f->right; x++) {
        s->run_left[x] = 0;  /* blocks that begin here, less those that ended */
        s->run_right[x] = 0; /* blocks that cross from the section before, likewise */
    }
    s->run_left[f->right] = 0;
    s->run_right[f->right] = 0;
    for (int32_t i = f->from; i < f->to; i++) {
        const int32_t b = s->ids[i];
        s->run_left[d->start[b]]++;
        s->run_left[d->stop[b]]--;
        s->run_right[d->start[b] + 1]++;
        s->run_right[d->stop[b]]--;
    }
    f->first = s->parts.count;
    int32_t live = 0;
    int32_t crossing = 0;
    struct part *part = NULL;
    for (int32_t x = f->left; x < f->right; x++) {
        live += s->run_left[x];
        crossing += s->run_right[x];
        if (live == 0) {
            part = NULL;
            s->part_of[x] = -1;
            continue;
        }
        if (part == NULL || crossing == 0) {
            part = push(&s->parts, sizeof *part);
            if (part == NULL) {
                return NO_MEMORY;
            }
            part->left = x;
            part->from = 0;
        }
        part->right = x + 1;
        s->part_of[x] = (int32_t)(s->parts.count - 1 - f->first);
    }
    struct part *parts = (struct part *)(void *)s->parts.items + f->first;
    const int32_t number = (int32_t)(s->parts.count - f->first);
    for (int32_t i = f->from; i < f->to; i++) {
        parts[s->part_of[d->start[s->ids[i]]]].from++;
    }
    int32_t at = f->from;
    for (int32_t p = 0; p < number; p++) {
        const int32_t blocks = parts[p].from;
        parts[p].from = at;
        parts[p].to = at;
        at += blocks;
    }
    memcpy(s->scratch, s->ids + f->from, (size_t)count * sizeof *s->ids);
    for (int32_t i = 0; i < count; i++) {
        const int32_t b = s->scratch[i];
        s->ids[parts[s->part_of[d->start[b]]].to++] = b;
    }
    for (int32_t p = 1; p < number; p++) {
        const struct part moved = parts[p];
        int32_t j = p;
        while (j > 0 && parts[j - 1].to - parts[j - 1].from > moved.to - moved.from) {
            parts[j] = parts[j - 1];
            j--;
        }
        parts[j] = moved;
    }
    f->section = -1;
    f->next = f->first;
    f->end = s->parts.count;
    return FOUND;
}

static int is_repeated(const struct search *s, const struct frame *f, int32_t b)
{
    const struct descent *d = s->d;
    const int32_t *options = (const int32_t *)(const void *)s->options.items;
    for (size_t o = f->first; o + 1 < f->next; o++) {
        const int32_t c = options[o];
        if (d->start[c] == d->start[b] && d->stop[c] == d->stop[b] && d->size[c] == d->size[b]) {
            return 1;
        }
    }
    return 0;
}

/* Nothing stands at this level of the section: each option must lie on another block. */
static int leave_empty(struct search *s, struct frame *f)
{
    const struct descent *d = s->d;
    f->dirty_left = f->right;
    f->dirty_right = f->left;
    for (size_t o = f->first; o < f->end; o++) {
        const int32_t b = ((const int32_t *)(void *)s->options.items)[o];
        int64_t support = NOTHING;
        for (int32_t i = f->from; i < f->to; i++) {
            const int32_t c = s->ids[i];
            if (c != b && d->start[c] < d->stop[b] && d->start[b] < d->stop[c] &&
                s->low[c] + d->size[c] < support) {
                support = s->low[c] + d->size[c];
            }
        }
        if (support == NOTHING) {
            return EXHAUSTED;
        }
        if (support > s->low[b] && !set(s, &s->low[b], support)) {
            return NO_MEMORY;
        }
        f->dirty_left = min32(f->dirty_left, d->start[b]);
        f->dirty_right = max32(f->dirty_right, d->stop[b]);
    }
    s->d->work -= (int64_t)(f->end - f->first) * (f->to - f->from);
    s->options.count = f->first;
    return FOUND;
}

/* Put block b at the frame's level; the frame of what is left is pushed. */
static struct frame *place(struct search *s, int32_t b)
{
    const struct descent *d = s->d;
    struct frame *child = push(&s->frames, sizeof *child);
    if (child == NULL) {
        return NULL;
    }
    const struct frame *f = child - 1;
    d->offset[b] = f->level;
    for (int32_t x = d->start[b]; x < d->stop[b]; x++) {
        if (!set(s, &s->floor[x], f->level + d->size[b])) {
            return NULL;
        }
    }
    int32_t to = f->from;
    for (int32_t i = f->from; i < f->to; i++) {
        if (s->ids[i] != b) {
            s->ids[to++] = s->ids[i];
        }
    }
    s->ids[to] = b;
    *child = (struct frame){.from = f->from,
                            .to = to,
                            .left = f->left,
                            .right = f->right,
                            .dirty_left = d->start[b],
                            .dirty_right = d->stop[b]};
    return child;
}

static int run(struct search *s)
{
    struct frame *f = push(&s->frames, sizeof *f);
    if (f == NULL) {
        return NO_MEMORY;
    }
    *f = (struct frame){.to = s->d->blocks, .right = s->d->sections, .dirty_right = s->d->sections};
    int result = open_parts(s, f);
    int returned = 0; /* whether result is that of a frame that has just ended */
    while (s->frames.count > 0) {
        if (result >= STOPPED) {
            return result;
        }
        f = (struct frame *)(void *)s->frames.items + (s->frames.count - 1);
        if (f->section < 0) {
            if ((returned && result == EXHAUSTED) || f->next == f->end) {
                if (!returned) {
                    result = FOUND; /* no parts: nothing was left */
                }
                s->parts.count = f->first;
                s->frames.count--;
                returned = 1;
                continue;
            }
            const struct part part = ((const struct part *)(void *)s->parts.items)[f->next++];
            const int32_t dirty_left = f->dirty_left;
            const int32_t dirty_right = f->dirty_right;
            f = push(&s->frames, sizeof *f);
            if (f == NULL) {
                return NO_MEMORY;
            }
            *f = (struct frame){.from = part.from,
                                .to = part.to,
                                .left = part.left,
                                .right = part.right,
                                .dirty_left = max32(dirty_left, part.left),
                                .dirty_right = min32(dirty_right, part.right)};
            f->first = s->options.count;
            f->section = 0;
            result = open_node(s, f);
            if (result == EXHAUSTED) {
                s->options.count = f->first;
                s->frames.count--;
                returned = 1;
            } else {
                returned = 0;
            }
            continue;
        }
        if (returned && result == FOUND) {
            s->options.count = f->first;
            s->frames.count--;
            continue;
        }
        if (returned) {
            undo(s, f->mark);
        }
        returned = 0;
        if (f->next < f->end) {
            const int32_t b = ((const int32_t *)(void *)s->options.items)[f->next++];
            if (is_repeated(s, f, b)) {
                result = FOUND;
                continue;
            }
            f = place(s, b);
            result = f == NULL ? NO_MEMORY : open_parts(s, f);
            continue;
        }
        result = leave_empty(s, f);
        if (result == FOUND) {
            result = open_node(s, f);
        }
        if (result == EXHAUSTED) {
            s->options.count = f->first;
            s->frames.count--;
            returned = 1;
        }
    }
    return result;
}

int descend(struct descent *d)
{
    const size_t blocks = (size_t)d->blocks;
    const size_t sections = (size_t)d->sections;
    struct search s = {.d = d};
    s.ids = malloc((blocks + 1) * sizeof *s.ids);
    s.scratch = malloc((blocks + 1) * sizeof *s.scratch);
    s.state = calloc(blocks + 2 * sections + 1, sizeof *s.state);
    s.least = calloc(sections + 1, sizeof *s.least);
    s.count = calloc(4 * (sections + 2), sizeof *s.count);
    int result = NO_MEMORY;
    if (s.ids != NULL && s.scratch != NULL && s.state != NULL && s.least != NULL &&
        s.count != NULL) {
        s.floor = s.state;
        s.low = s.state + sections;
        s.top = s.low + blocks;
        s.run_left = s.count + (sections + 2);
        s.run_right = s.run_left + (sections + 2);
        s.part_of = s.run_right + (sections + 2);
        for (int32_t b = 0; b < d->blocks; b++) {
            s.ids[b] = b;
        }
        result = run(&s);
    }
    free(s.ids);
    free(s.scratch);
    free(s.state);
    free(s.least);
    free(s.count);
    free(s.trail.items);
    free(s.frames.items);
    free(s.options.items);
    free(s.parts.items);
    return result;
}
