//! NTS key establishment (RFC 8915, section 4): its records, the listener that servers run and the
//! client that asks it, both over TLS 1.3. What a cookie holds is not known here.
