"""What the demo plays: the incidents, and a naive reader of each."""
