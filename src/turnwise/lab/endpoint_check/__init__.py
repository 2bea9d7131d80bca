"""`turnwise check`: small requests to a live endpoint, and what they show.

`probes` says what is asked, `observing` sends it, `shapes` and `judging` say what the answers show, `meanings` holds the words,
`profile_rows` writes the row for the profile, `showing` prints, and `session` does it all in order.
"""
