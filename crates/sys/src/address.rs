//! Socket addresses of IPv4 and IPv6 in the kernel's layout, encoded and decoded byte by byte.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Sizes of `struct sockaddr_in` (ip(7)) and `struct sockaddr_in6` (ipv6(7)), in bytes.
const V4_BYTES: usize = 16;
const V6_BYTES: usize = 28;

/// Buffer for an address of either version, aligned like the kernel's structures.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(crate) struct SockaddrBuffer([u8; 32]);

impl SockaddrBuffer {
    /// Capacity of the buffer, in bytes.
    pub(crate) const CAPACITY: usize = 32;

    /// Returns the address in the kernel's layout and its length in bytes.
    pub(crate) fn encode(address: SocketAddr) -> (Self, usize) {
        let mut raw = [0; Self::CAPACITY];
        raw[2..4].copy_from_slice(&address.port().to_be_bytes());
        let (family, length) = match address {
            SocketAddr::V4(v4) => {
                raw[4..8].copy_from_slice(&v4.ip().octets());
                (libc::AF_INET, V4_BYTES)
            }
            SocketAddr::V6(v6) => {
                raw[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                raw[8..24].copy_from_slice(&v6.ip().octets());
                raw[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (libc::AF_INET6, V6_BYTES)
            }
        };
        raw[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
        (Self(raw), length)
    }

    /// Decodes the address in the first `length` bytes; `None` if it is too short or neither IPv4
    /// nor IPv6.
    pub(crate) fn decode(&self, length: usize) -> Option<SocketAddr> {
        let raw = &self.0[..length.min(Self::CAPACITY)];
        let family = u16::from_ne_bytes(*raw.first_chunk()?);
        let port = u16::from_be_bytes(*raw.get(2..)?.first_chunk()?);
        match i32::from(family) {
            libc::AF_INET if raw.len() >= V4_BYTES => {
                let octets: [u8; 4] = *raw.get(4..)?.first_chunk()?;
                Some(SocketAddrV4::new(Ipv4Addr::from(octets), port).into())
            }
            libc::AF_INET6 if raw.len() >= V6_BYTES => {
                let flow = u32::from_be_bytes(*raw.get(4..)?.first_chunk()?);
                let octets: [u8; 16] = *raw.get(8..)?.first_chunk()?;
                let scope = u32::from_ne_bytes(*raw.get(24..)?.first_chunk()?);
                Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope).into())
            }
            _ => None,
        }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        std::ptr::from_ref(self).cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        std::ptr::from_mut(self).cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in ["192.0.2.1:123", "[2001:db8::1]:123", "[fe80::1%3]:40000", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (raw, length) = SockaddrBuffer::encode(address);
            assert_eq!(raw.decode(length), Some(address), "{text}");
            assert_eq!(raw.decode(length - 1), None, "{text} cut short");
        }
        assert_eq!(SockaddrBuffer::default().decode(SockaddrBuffer::CAPACITY), None, "no family");
    }

    #[test]
    fn layout_is_that_of_the_kernel() {
        assert_eq!(V4_BYTES, size_of::<libc::sockaddr_in>());
        assert_eq!(V6_BYTES, size_of::<libc::sockaddr_in6>());
        assert_eq!(std::mem::offset_of!(libc::sockaddr_in, sin_addr), 4);
        assert_eq!(std::mem::offset_of!(libc::sockaddr_in6, sin6_flowinfo), 4);
        assert_eq!(std::mem::offset_of!(libc::sockaddr_in6, sin6_addr), 8);
        assert_eq!(std::mem::offset_of!(libc::sockaddr_in6, sin6_scope_id), 24);
    }
}
