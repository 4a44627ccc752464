//! Explanation of system errors for users: cause and remedy instead of an error number.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::IpAddr;

/// Explains a system error by its cause and remedy.
#[must_use]
pub fn explain(error: &io::Error) -> ExplainedError<'_> {
    ExplainedError(error)
}

/// Explains an error of sending or connecting to `address`; some errors are more specific if the
/// address is known.
#[must_use]
pub fn explain_to(error: &io::Error, address: IpAddr) -> String {
    let ways = error.raw_os_error().and_then(|code| address_explanation(code, address));
    ways.unwrap_or_else(|| explain(error).to_string())
}

/// Returns cause and remedy of errors that are more specific if the address is known.
fn address_explanation(code: i32, address: IpAddr) -> Option<String> {
    let has_no_address = "this host has no source address or no free port for it ('ip address' \
                          lists addresses";
    Some(match code {
        libc::EACCES | libc::EPERM => format!(
            "a route or a firewall of this host forbids it (see 'ip route get {address}' and 'nft list \
             ruleset')"
        ),
        libc::EINVAL => {
            format!(
                "the kernel refuses the address: possibly a blackhole route (see 'ip route get \
                 {address}')"
            )
        }
        libc::ENETUNREACH => format!("no route to it (see 'ip route get {address}')"),
        libc::EAFNOSUPPORT if address.is_ipv4() => {
            "this kernel or container has no IPv4, or the socket is an IPv6 one".to_owned()
        }
        libc::EAFNOSUPPORT => {
            "this kernel or container has no IPv6: it may be disabled (ipv6.disable=1)".to_owned()
        }
        libc::EADDRNOTAVAIL if address.is_ipv4() => format!("{has_no_address})"),
        libc::EADDRNOTAVAIL => {
            format!("{has_no_address}; IPv6 may be disabled by net.ipv6.conf.all.disable_ipv6)")
        }
        _ => return None,
    })
}

/// System error that displays its explanation.
#[derive(Clone, Copy, Debug)]
pub struct ExplainedError<'a>(&'a io::Error);

impl Display for ExplainedError<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(code) = self.0.raw_os_error() else { return write!(f, "{}", self.0) };
        if let Some(words) = explanation(code) {
            return f.write_str(words);
        }
        // The standard library appends the number to the C library's text.
        let text = self.0.to_string();
        f.write_str(text.rsplit_once(ERRNO_SEPARATOR).map_or(&*text, |(text, _)| text))
    }
}

/// Separator between text and error number in messages of the standard library.
const ERRNO_SEPARATOR: &str = " (os error ";

/// Replaces system errors in a line of output by their explanation, for lines that were composed
/// without this module.
#[must_use]
pub fn explain_line(line: &str) -> Cow<'_, str> {
    let Some((before, rest)) = line.split_once(ERRNO_SEPARATOR) else { return line.into() };
    let after = rest.trim_start_matches(|byte: char| byte.is_ascii_digit());
    let (code, after) = (&rest[..rest.len() - after.len()], after.strip_prefix(')'));
    let Some((Ok(code), after)) = after.map(|after| (code.parse(), after)) else {
        return line.into();
    };
    let error = io::Error::from_raw_os_error(code);
    let text = error.to_string();
    let text = text.rsplit_once(ERRNO_SEPARATOR).map_or(&*text, |(text, _)| text);
    let Some(before) = before.strip_suffix(text) else { return line.into() };
    format!("{before}{}{}", explain(&error), explain_line(after)).into()
}

/// Returns cause and remedy of errors whose usual text names neither.
const fn explanation(code: i32) -> Option<&'static str> {
    Some(match code {
        libc::EAFNOSUPPORT => {
            "this kernel or container does not support the address family (for an IPv6 address: \
             IPv6 may be disabled by ipv6.disable=1)"
        }
        libc::EADDRNOTAVAIL => {
            "not an address of this host now ('ip address' lists them; for an IPv6 address: IPv6 \
             may be disabled by net.ipv6.conf.all.disable_ipv6)"
        }
        libc::EADDRINUSE => "address and port in use by another program ('ss -tulpn' names it)",
        libc::EPERM => {
            "not permitted: root or a capability is required, or a container or sandbox denies it"
        }
        libc::EACCES => {
            "permission denied: by owner and mode of a file, or by a route or a firewall of this host"
        }
        libc::EMFILE => "too many open files in this process: raise 'ulimit -n'",
        libc::ENFILE => "too many open files in the system: raise fs.file-max",
        libc::ENOBUFS => "the kernel is out of buffers: send less, or raise net.core.wmem_max",
        libc::ENOMEM => "out of memory: check the limits on memory and locked memory (ulimit -a)",
        libc::ENODEV | libc::ENXIO => {
            "the device or interface does not exist ('ip link' lists interfaces)"
        }
        libc::ENOSYS => "this kernel or container does not support the system call",
        libc::EOPNOTSUPP => "the kernel or the driver does not support it",
        libc::ENETUNREACH => "no route to it (see 'ip route get ADDRESS')",
        libc::EHOSTUNREACH => "the host does not answer on its link, or a firewall rejects it",
        libc::ENETDOWN => "the interface is down (see 'ip link set IF up')",
        libc::ECONNREFUSED => "connection refused: no program listens there",
        libc::ECONNRESET | libc::EPIPE => "the peer closed the connection",
        libc::ETIMEDOUT => "timeout: a firewall may drop packets, or the host is down",
        libc::EMSGSIZE => "the datagram is larger than the MTU of the path",
        libc::ERANGE => "the value is out of the range of the driver",
        libc::EBUSY => "in use by another program",
        libc::ENOSPC => "no space left on the device",
        libc::EROFS => "the file system is mounted read-only",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_explained_by_the_address() {
        let (v4, v6) = ([192, 0, 2, 1].into(), "2001:db8::1".parse().unwrap());
        let text = |code, to| explain_to(&io::Error::from_raw_os_error(code), to);
        for code in [libc::EACCES, libc::EINVAL, libc::ENETUNREACH] {
            assert!(text(code, v4).contains("ip route get 192.0.2.1"), "{}", text(code, v4));
            assert!(!text(code, v4).contains("mode"), "{}", text(code, v4));
        }
        for code in [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL] {
            assert!(!text(code, v4).contains("disabled"), "{}", text(code, v4));
            assert!(text(code, v6).contains("disabled"), "{}", text(code, v6));
            let neutral = explain(&io::Error::from_raw_os_error(code)).to_string();
            assert!(
                neutral.contains("(for an IPv6 address") || neutral.contains("; for an IPv6"),
                "{neutral}"
            );
        }
        assert_eq!(text(libc::ECONNREFUSED, v4), "connection refused: no program listens there");
    }

    #[test]
    fn no_error_is_a_bare_number() {
        for code in 1..134 {
            let text = explain(&io::Error::from_raw_os_error(code)).to_string();
            assert!(!text.contains("os error") && !text.contains('\n'), "{code}: {text}");
            // Numbers without an error have no other text.
            let is_unknown = text.starts_with("Unknown error");
            assert!(is_unknown || !text.ends_with(char::is_numeric), "{code}: {text}");
        }
        for code in [libc::EACCES, libc::ENOENT] {
            let error = io::Error::from_raw_os_error(code);
            let line = explain_line(&format!("cannot read x: {error}; y: {error}")).into_owned();
            let words = explain(&error);
            assert_eq!(line, format!("cannot read x: {words}; y: {words}"));
        }
        for whole in [
            "",
            "no error",
            "(os error 2)",
            "x (os error ",
            "x (os error 2",
            "é (os error 99999999999)",
        ] {
            assert_eq!(explain_line(whole), whole);
        }
        let own = io::Error::other("a reason of its own");
        assert_eq!(explain(&own).to_string(), "a reason of its own");
    }
}
