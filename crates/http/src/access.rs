//! Access policy of a server. Without a token it serves only this host: it listens on loopback, and
//! the field `Host` of a request must name loopback. With a token, any client that presents it has
//! access, from any address.
//!
//! The field `Host` protects against DNS rebinding: a foreign page whose name was made to resolve
//! to 127.0.0.1 could otherwise read the responses through the user's browser, but its requests
//! carry its own name. A browser never adds a token to the requests of a foreign page: the token is
//! in the link that the user opened, and the page sends it in a header field. A cookie, in
//! contrast, would be added automatically, to requests for any port of the host.

use std::net::{IpAddr, SocketAddr};

use crate::request::percent_decode;
use crate::{BearerToken, HttpRequest, HttpResponse};

/// Name of the query parameter that holds the token.
const TOKEN_PARAMETER: &str = "token";

/// Access policy: the required token; without one, access is limited to this host.
#[derive(Clone, Debug, Default)]
pub struct AccessPolicy {
    token: Option<BearerToken>,
}

impl AccessPolicy {
    /// Creates a policy that admits clients with the token or, for `None`, requests whose field
    /// `Host` names loopback.
    #[must_use]
    pub const fn new(token: Option<BearerToken>) -> Self {
        Self { token }
    }

    /// Returns true if the server may listen on this address: any with a token, loopback without
    /// one.
    #[must_use]
    pub fn allows_address(&self, address: SocketAddr) -> bool {
        self.token.is_some() || address.ip().to_canonical().is_loopback()
    }

    /// Returns the response that refuses a request, or `None` if it is admitted. The token may be
    /// in the field `Authorization` or, without that field, in the query. A client without the
    /// token learns nothing, not even which paths exist.
    #[must_use]
    pub fn refusal(&self, request: &HttpRequest<'_>) -> Option<HttpResponse> {
        let Some(token) = &self.token else {
            let is_for_loopback = request.host.is_some_and(is_loopback_host);
            let reason = "this server is for localhost only; use that name or 127.0.0.1\n";
            return (!is_for_loopback).then(|| HttpResponse::text(421, reason));
        };
        let in_link = || request.parameter(TOKEN_PARAMETER).and_then(percent_decode);
        let is_authorised = match request.bearer {
            Some(presented) => token.matches(presented),
            None => in_link().is_some_and(|presented| token.matches(&presented)),
        };
        (!is_authorised).then(|| HttpResponse::text(401, "the token is missing or wrong\n"))
    }
}

/// Returns true if the host is `localhost` or a loopback address, which no other host can have. The
/// port is ignored, since a tunnel may use another one.
fn is_loopback_host(host: &str) -> bool {
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
        let guard = AccessPolicy::new(BearerToken::parse(TOKEN));
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
