//! The cryptography of NTP: Network Time Security for NTP packets (RFC 8915, section 5), the AEAD
//! algorithms that it uses (RFC 5297, RFC 8452), cookies and their rotating keys, and symmetric-key
//! message authentication codes. It opens no file and no socket and reads no clock.
