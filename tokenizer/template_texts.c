/* The fixed texts of the Qwen3.5 family's chat templates: what the models saw in
 * training, byte for byte. The tests compare them with renderings of the
 * published templates. */
#include "config.h"
#include "tokenizer/template_int.h"

const char template_tools_head[] = "# Tools\n\nYou have access to the following functions:\n"
                                   "\n<tools>";

const char template_tools_tail[] =
    "\n</tools>\n\n"
    "If you choose to call a function ONLY reply in the following format with NO "
    "suffix:\n\n<tool_call>\n<function=example_function_name>\n"
    "<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n<parameter=example_parameter_2>\n"
    "This is the value for the second parameter\n"
    "that can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n"
    "\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner "
    "<function=...></function> block must be nested within <tool_call></tool_call> XML "
    "tags\n- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language "
    "BEFORE the function call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your "
    "current knowledge and do not tell the user about function calls\n"
    "</IMPORTANT>";

const char template_effort_low[] =
    "Reasoning effort is set to low. Keep your thinking brief and focused, moving "
    "directly to the conclusion without unnecessary elaboration.";

const char template_effort_high[] =
    "Reasoning effort is set to xhigh. Please think carefully through the task, validate "
    "key assumptions, consider plausible alternatives, and prioritize correctness, "
    "consistency, and clarity in the final answer.";
