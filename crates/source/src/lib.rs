//! Where the time comes from: what other daemons and devices say of it, behind one trait, and the
//! vote over several of them. Nothing here sets a clock.
