"""How long a test waits for what must come."""

# Only a hang waits this long: with four busy processes beside the suite each test still ends. A fixed time that a test
# is about (a tool's timeout, a deadline of the turn) is no wait, and stands in the test.
HANG_S = 300.0
TEST_S = 2.5 * HANG_S  # a whole test, also one that waits without a bound
