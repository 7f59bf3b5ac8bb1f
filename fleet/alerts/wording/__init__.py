"""Words that headlines, incidents and notifications share."""
