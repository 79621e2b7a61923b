#!/bin/sh
# A few of the golden screens, in two surroundings; all of them: make check-golden. TAP.
exec "${QUASAR_SRCDIR:?}/tests/golden-screens" -s 80x24 -s ascii welcome chat thought-live queue \
    find help four-panes hostile
