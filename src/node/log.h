/* Log lines for people. node is part of a library and prints nothing: it passes each line to its
 * program. */
#ifndef WEFT_NODE_LOG_H
#define WEFT_NODE_LOG_H

enum weft_node_level { WEFT_NODE_INFO, WEFT_NODE_WARNING };

struct weft_node_log {
    /* One line, without the newline. NULL = lines are discarded. Thread: any of node's, several at
     * once. */
    void (*say)(void *arg, enum weft_node_level level, const char *text);
    void *arg;
};

[[gnu::format(printf, 2, 3)]] void weft_node_info(const struct weft_node_log *log,
                                                  const char *format, ...);
[[gnu::format(printf, 2, 3)]] void weft_node_warn(const struct weft_node_log *log,
                                                  const char *format, ...);

#endif
