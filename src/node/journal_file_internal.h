/* Private state of the files of a journal, shared by journal_file.c (this process's) and
 * journal_former.c (that of the previous process). Internal to these two files. */
#ifndef WEFT_NODE_JOURNAL_FILE_INTERNAL_H
#define WEFT_NODE_JOURNAL_FILE_INTERNAL_H

#include "node/journal_file.h"

enum { JOURNAL_PAGE_BYTES = 4096, JOURNAL_PATH_BYTES = 4096 };

/* DIR/journal-SSSS-CCCCCCCCCCCC; for claim 0 the name that release 0.1.0 used. */
weft_status weft_journal_path(const struct weft_journal_options *options, uint32_t shard,
                              uint64_t claim, char path_p[JOURNAL_PATH_BYTES],
                              struct weft_error *error);

/* A regular file of this user, with one link: other users that may write to the folder could have
 * put another file there. */
bool weft_journal_is_ours(int fd);

/* Read the predecessor's journal, if there is one, into file->former. */
weft_status weft_journal_former_read(struct weft_journal_file *file, struct weft_journal_news *news,
                                     struct weft_error *error);

/* Release the predecessor's journal: it was read, or cannot be used. */
void weft_journal_former_unmap(struct weft_journal_former *former);

/* Move the file at path to a free name in quarantine/. */
weft_status weft_journal_put_aside(const struct weft_journal_options *options, const char *path,
                                   struct weft_error *error);

/* Append a sentence to news->text. */
[[gnu::format(printf, 2, 3)]] void weft_journal_news_add(struct weft_journal_news *news,
                                                         const char *format, ...);

#endif
