#!/bin/sh
# Claude Code for one question, through the gateway: your own settings of Claude Code stay as they are.
# What is piped in is part of the question: git diff | sh examples/claude_code.sh "Review this."
export ANTHROPIC_BASE_URL="${OPENAI_BASE_URL%/v1}"
export ANTHROPIC_AUTH_TOKEN="$OPENAI_API_KEY"
export ANTHROPIC_MODEL="claude-${MODEL:-codex-5}"
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
unset ANTHROPIC_API_KEY
exec claude --print "${1:-Say hello in one sentence.}"
