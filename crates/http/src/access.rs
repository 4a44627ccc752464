//! Access policy of pages. Without a token a page is for this host alone: the server listens on
//! loopback, and the request must name this host. With a token, any client that presents it has
//! access, from any address.
//!
//! A browser lends its reach to the pages in it: a foreign page whose name was made to point at
//! 127.0.0.1 (DNS rebinding) could read the responses. Its requests still carry its own name as the
//! host, and are refused for that. A token is never lent in this way, since no browser adds it by
//! itself: it is in the link that was opened, and the page passes it on in a header. A cookie would
//! be sent automatically, and to every port of its host.

use std::net::{IpAddr, SocketAddr};

use crate::request::decoded;
use crate::{HttpRequest, HttpResponse, Token};

/// Name of the link parameter that holds the token.
const PARAMETER: &str = "token";

/// The token to present, if one is required.
#[derive(Clone, Debug, Default)]
pub struct AccessPolicy {
    token: Option<Token>,
}

impl AccessPolicy {
    /// Admits clients with the token or, without a token, clients of this host.
    #[must_use]
    pub const fn new(token: Option<Token>) -> Self {
        Self { token }
    }

    /// Returns true if pages may be served at this address: any with a token, loopback without one.
    #[must_use]
    pub fn allows_address(&self, address: SocketAddr) -> bool {
        self.token.is_some() || address.ip().to_canonical().is_loopback()
    }

    /// The refusal of a request, if any. A client without the token learns nothing, not even which
    /// paths exist.
    #[must_use]
    pub fn refusal(&self, request: &HttpRequest<'_>) -> Option<HttpResponse> {
        let Some(token) = &self.token else {
            let is_meant = request.host.is_some_and(means_this_machine);
            let reason = "this server is for localhost only; use that name or 127.0.0.1\n";
            return (!is_meant).then(|| HttpResponse::text(421, reason));
        };
        let in_link = || request.parameter(PARAMETER).and_then(decoded);
        let is_shown = match request.bearer {
            Some(presented) => token.matches(presented),
            None => in_link().is_some_and(|presented| token.matches(&presented)),
        };
        (!is_shown).then(|| HttpResponse::text(401, "the token is missing or wrong\n"))
    }
}

/// Returns true if a host is this one by a name that no other host can have. The port is ignored: a
/// tunnel may use another one.
fn means_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789ab%+ef";

    fn code(guard: &AccessPolicy, target: &str, fields: &str) -> Option<u16> {
        let text = format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
        let request = HttpRequest::parse(text.as_bytes()).unwrap();
        guard.refusal(&request).map(|answer| answer.code)
    }

    #[test]
    fn without_a_token_only_who_means_this_machine_is_answered() {
        let guard = AccessPolicy::default();
        for host in ["localhost", "LocalHost:80", "127.0.0.1:9124", "[::1]:1", "127.5.0.1"] {
            assert_eq!(code(&guard, "/", &format!("Host: {host}\r\n")), None, "{host}");
        }
        let foreign = ["evil.example", "localhost.evil.example", "192.0.2.1", "127.0.0.1.evil:80"];
        for host in foreign {
            assert_eq!(code(&guard, "/", &format!("Host: {host}\r\n")), Some(421), "{host}");
        }
        assert_eq!(code(&guard, "/", ""), Some(421));
        assert!(guard.allows_address("127.0.0.1:1".parse().unwrap()));
        assert!(guard.allows_address("[::ffff:127.0.0.1]:1".parse().unwrap()));
        assert!(!guard.allows_address("0.0.0.0:1".parse().unwrap()));
        assert!(!guard.allows_address("10.0.0.1:1".parse().unwrap()));
    }

    #[test]
    fn with_a_token_only_who_shows_it_is_answered() {
        let guard = AccessPolicy::new(Token::parse(TOKEN));
        assert!(guard.allows_address("0.0.0.0:1".parse().unwrap()));
        let bearer = |token: &str| format!("Host: a.example\r\nAuthorization: Bearer {token}\r\n");
        assert_eq!(code(&guard, "/", &bearer(TOKEN)), None);
        assert_eq!(code(&guard, "/?token=0123456789ab%25%2Bef", ""), None);
        assert_eq!(code(&guard, "/?since=1&token=0123456789ab%25+ef", ""), None);
        for (target, fields) in [
            ("/", String::new()),
            ("/", "Host: localhost\r\n".to_owned()),
            ("/", bearer("0123456789ab%+eg")),
            ("/?token=0123456789ab%+ef", String::new()),
            ("/?token=", String::new()),
            ("/?token=0123456789ab%25%2Bef", bearer("wrong")),
        ] {
            assert_eq!(code(&guard, target, &fields), Some(401), "{target} {fields}");
        }
        assert!(!format!("{guard:?}").contains("0123"));
    }
}
