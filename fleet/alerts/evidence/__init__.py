"""Evidence of incidents: the affected agents at the peak, kept with the incident."""
