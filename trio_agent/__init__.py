"""trio_agent."""
