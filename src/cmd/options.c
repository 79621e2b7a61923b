/* Every option of every command, once. The manual page is checked against it. */
#include "config.h"
#include "cmd/options.h"

#include <stddef.h>

#define NO_BOUNDS 1, 0 /* lo > hi */

const struct conf_opt options_table[] = {
    /* what to run on */
    {"model", 'm', CONF_STR, "demo", NO_BOUNDS, NULL, C_ENGINE | C_TOKENIZE | C_TEMPLATE, "MODEL",
     "model file, or its name under the data folder", false},
    {"backend", 0, CONF_ENUM, "auto", NO_BOUNDS, "auto|cuda|cpu", C_ENGINE, "NAME", "what computes",
     false},
    {"device", 0, CONF_INT, "0", 0, 63, NULL, C_ENGINE, "N", "CUDA device number", false},
    {"threads", 0, CONF_INT, "auto", 1, 1024, "auto", C_ENGINE, "N", "CPU threads", false},
    {"isa", 0, CONF_ENUM, "auto", NO_BOUNDS, "auto|avx512|avx2|portable", C_ENGINE, "NAME",
     "SIMD path of the CPU backend", false},
    {"ctx", 0, CONF_INT, "auto", 64, 1 << 20, "auto", C_ENGINE, "N", "context window in tokens",
     false},
    {"kv", 0, CONF_ENUM, "auto", NO_BOUNDS, "auto|f32|fp16|fp8", C_ENGINE, "FORMAT",
     "format of the key/value cache", false},
    {"cuda-path", 0, CONF_ENUM, "auto", NO_BOUNDS, "auto|sm80|sm90", C_ENGINE, "NAME",
     "which CUDA kernels run", false},
    {"cuda-graphs", 0, CONF_INT, "16", 0, 256, NULL, C_ENGINE, "N",
     "CUDA graphs kept; 0 launches every kernel by itself", false},
    {"max-draft", 0, CONF_INT, "16", 0, 16, NULL, C_ENGINE, "N",
     "deepest chain of drafts; 0 leaves the MTP layer out", false},
    {"verify-width", 0, CONF_INT, "auto", 1, 16, "auto", C_ENGINE, "N",
     "most rows of one sequence in a step; auto: one more than --max-draft", false},
    {"verify-weights", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_ENGINE, NULL,
     "check every weight's digest while loading", false},

    /* what to read */
    {"prompt", 'p', CONF_STR, NULL, NO_BOUNDS, NULL, C_RUN, "TEXT", "the prompt", true},
    {"file", 'f', CONF_STR, NULL, NO_BOUNDS, NULL, C_RUN | C_SCORE | C_TOKENIZE, "FILE",
     "read it from a file, or - for standard input", true},
    {"tokens", 0, CONF_STR, NULL, NO_BOUNDS, NULL, C_RUN | C_SCORE, "I,I,…",
     "token ids instead of text", true},
    {"messages", 0, CONF_STR, NULL, NO_BOUNDS, NULL, C_RUN | C_TEMPLATE, "FILE",
     "a JSON array of chat messages", true},
    {"tools", 0, CONF_STR, NULL, NO_BOUNDS, NULL, C_RUN | C_TEMPLATE, "FILE",
     "a JSON array of tool definitions", true},
    {"system", 0, CONF_STR, NULL, NO_BOUNDS, NULL, C_GENERATE, "TEXT", "system prompt", false},
    {"raw", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_RUN, NULL,
     "no chat template: continue the text itself", true},
    {"tokenizer", 0, CONF_STR, NULL, NO_BOUNDS, NULL, C_TOKENIZE, "FILE",
     "tokenizer.json, .tok or model file", true},
    {"decode", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_TOKENIZE, NULL, "ids to text", true},
    {"jsonl", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_TOKENIZE, NULL,
     "one JSON string (or id array with --decode) a line in, one result a line out", true},
    {"no-specials", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_TOKENIZE, NULL,
     "treat special tokens in the text as plain text", true},

    /* chat template */
    {"template", 0, CONF_STR, NULL, NO_BOUNDS, NULL, C_GENERATE | C_TEMPLATE, "NAME",
     "3.5, 3.5-off, 3.6, 3.8, demo, or a template file (default: the model's own)", false},
    {"effort", 0, CONF_ENUM, NULL, NO_BOUNDS, "low|medium|high|xhigh", C_GENERATE | C_TEMPLATE, "E",
     "reasoning effort, where the template knows it", false},
    {"think", 0, CONF_ENUM, NULL, NO_BOUNDS, "on|off", C_GENERATE | C_TEMPLATE, "WHETHER",
     "let the model think first", false},
    {"preserve-thinking", 0, CONF_FLAG, NULL, NO_BOUNDS, NULL, C_GENERATE | C_TEMPLATE, NULL,
     "keep the thoughts of earlier turns in the prompt", false},
    {"no-generation-prompt", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_TEMPLATE, NULL,
     "end after the last message", true},

    /* how to sample */
    {"temp", 0, CONF_NUM, NULL, 0, 100, NULL, C_GENERATE, "T", "temperature; 0 is greedy", false},
    {"top-k", 0, CONF_INT, NULL, -1, 1 << 20, NULL, C_GENERATE, "K", "keep the K likeliest", false},
    {"top-p", 0, CONF_NUM, NULL, 0, 1, NULL, C_GENERATE, "P", "keep the nucleus of mass P", false},
    {"min-p", 0, CONF_NUM, NULL, 0, 1, NULL, C_GENERATE, "P",
     "drop what is less than P times as likely as the likeliest", false},
    {"seed", 0, CONF_INT, NULL, 0, 0x1p63, NULL, C_GENERATE, "N", "random seed", false},
    {"stop", 0, CONF_LIST, NULL, NO_BOUNDS, NULL, C_GENERATE, "TEXT",
     "end the answer before this text (repeatable)", false},
    {"max-tokens", 'n', CONF_INT, NULL, 1, 1 << 20, NULL, C_GENERATE, "N",
     "most tokens to generate", false},
    {"ignore-eos", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_RUN, NULL,
     "go on past the end-of-turn token", true},

    /* how to answer */
    {"stats", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_RUN, NULL,
     "print counts and speeds to standard error", false},
    {"json", 0, CONF_FLAG, "no", NO_BOUNDS, NULL,
     C_RUN | C_SCORE | C_TOKENIZE | C_TEMPLATE | C_INSPECT | C_BENCH | C_CONFIG, NULL,
     "one JSON object", true},
    {"json-stream", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_RUN, NULL, "one JSON event a line",
     true},

    /* score */
    {"top", 0, CONF_INT, "0", 0, 1000, NULL, C_SCORE, "K", "list the K likeliest ids", true},
    {"mtp", 0, CONF_INT, "0", 0, 16, NULL, C_SCORE, "D", "D chained greedy drafts", true},
    {"logits", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_SCORE, NULL, "add raw logits", true},
    {"states", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_SCORE, NULL,
     "add checksums of the hidden and recurrent state after the text", true},
    {"ref", 0, CONF_STR, NULL, NO_BOUNDS, NULL, C_SCORE, "FILE",
     "compare with a reference file and report the differences", true},
    {"as", 0, CONF_ENUM, "prefill", NO_BOUNDS, "prefill|decode", C_SCORE, "HOW",
     "which path computes", true},

    /* convert, inspect */
    {"tier", 0, CONF_ENUM, NULL, NO_BOUNDS, "f32|bf16|q8|default|q4s|q5f|q6|q6f|q6k",
     C_CONVERT | C_BENCH, "NAME", "weight formats to write [default]", true},
    {"to", 0, CONF_ENUM, "qsr", NO_BOUNDS, "qsr|gguf|hf", C_CONVERT, "FORMAT", "what to write",
     true},
    {"force", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_CONVERT, NULL, "overwrite the target", true},
    {"verify", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_INSPECT, NULL,
     "check the digest of every blob", true},

    /* bench */
    {"synthetic", 0, CONF_STR, NULL, NO_BOUNDS, NULL, C_BENCH, "NAME",
     "random weights of a known shape instead of a model", true},
    {"write", 0, CONF_STR, NULL, NO_BOUNDS, NULL, C_BENCH, "FILE",
     "write the synthetic model and stop", true},
    {"what", 0, CONF_STR, "decode,prefill", NO_BOUNDS, NULL, C_BENCH, "LIST",
     "decode, prefill, draft, ttft, start", true},
    {"depth", 0, CONF_STR, "0", NO_BOUNDS, NULL, C_BENCH, "N,…", "tokens already in the context",
     true},
    {"prompt-tokens", 0, CONF_STR, "512", NO_BOUNDS, NULL, C_BENCH, "N,…", "prefill lengths", true},
    {"rows", 0, CONF_STR, "1", NO_BOUNDS, NULL, C_BENCH, "N,…", "rows per decode step", true},
    {"one-sequence", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_BENCH, NULL,
     "the rows of a step belong to one sequence", true},
    {"reps", 0, CONF_INT, "5", 1, 1000, NULL, C_BENCH, "N", "repetitions; medians are shown", true},

    /* screen */
    {"plain", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_CHAT, NULL,
     "line mode, for screen readers and dumb terminals", false},
    {"ascii", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_CHAT, NULL, "no line-drawing characters",
     false},
    {"editor", 0, CONF_ENUM, "emacs", NO_BOUNDS, "emacs|vi", C_CHAT, "KEYS",
     "key bindings of the composer", false},
    {"keys", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_CHAT, NULL, "print every key and command",
     true},
    {"reset-terminal", 0, CONF_FLAG, "no", NO_BOUNDS, NULL, C_CHAT, NULL,
     "take the modes of a killed quasar off the terminal", true},

    {"help", 'h', CONF_FLAG, "no", NO_BOUNDS, NULL, C_ALL, NULL, "this text", true},
    {NULL, 0, CONF_FLAG, NULL, NO_BOUNDS, NULL, 0, NULL, NULL, false},
};
