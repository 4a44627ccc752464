//! The far end over loopback: what it answers, and what it refuses.
