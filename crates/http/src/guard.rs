//! Who may read a page. Without a token it is for this machine alone: it listens on loopback, and
//! what asks has to have meant this machine. With a token, whoever shows it may, from anywhere.
//!
//! A browser lends its reach to the pages in it: one from elsewhere whose name was made to point at
//! 127.0.0.1 (DNS rebinding) could read what is answered there. It still names itself as the host,
//! and is refused by that. A token is never lent in such a way, since no browser adds it by itself:
//! it stands in the link that was opened, and the page passes it on in a header. A cookie would be
//! sent unasked, and to every port of its host.

use std::net::{IpAddr, SocketAddr};

use crate::request::decoded;
use crate::{Answer, Request, Token};

/// The parameter of a link that holds the token.
const PARAMETER: &str = "token";

/// What has to be shown.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    token: Option<Token>,
}

impl Guard {
    /// Lets those in who show the token, or else, without one, those of this machine.
    #[must_use]
    pub const fn new(token: Option<Token>) -> Self {
        Self { token }
    }

    /// Whether pages may be answered there: anywhere with a token, on loopback without one.
    #[must_use]
    pub fn permits(&self, address: SocketAddr) -> bool {
        self.token.is_some() || address.ip().to_canonical().is_loopback()
    }

    /// Why a request is not answered, where it is not. Who does not show the token learns nothing,
    /// not even what there is.
    #[must_use]
    pub fn refusal(&self, request: &Request<'_>) -> Option<Answer> {
        let Some(token) = &self.token else {
            let is_meant = request.host.is_some_and(means_this_machine);
            let reason = "this page is for localhost; ask by that name or by 127.0.0.1\n";
            return (!is_meant).then(|| Answer::text(421, reason));
        };
        let in_link = || request.parameter(PARAMETER).and_then(decoded);
        let is_shown = match request.bearer {
            Some(presented) => token.is(presented),
            None => in_link().is_some_and(|presented| token.is(&presented)),
        };
        (!is_shown).then(|| Answer::text(401, "the token is missing or wrong\n"))
    }
}

/// Whether a host is this machine by a name that nobody else can give it. Which port it is asked at
/// says nothing: a tunnel may have another one.
fn means_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789ab%+ef";

    fn code(guard: &Guard, target: &str, fields: &str) -> Option<u16> {
        let text = format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
        let request = Request::parse(text.as_bytes()).unwrap();
        guard.refusal(&request).map(|answer| answer.code)
    }

    #[test]
    fn without_a_token_only_who_means_this_machine_is_answered() {
        let guard = Guard::default();
        for host in ["localhost", "LocalHost:80", "127.0.0.1:9124", "[::1]:1", "127.5.0.1"] {
            assert_eq!(code(&guard, "/", &format!("Host: {host}\r\n")), None, "{host}");
        }
        let foreign = ["evil.example", "localhost.evil.example", "192.0.2.1", "127.0.0.1.evil:80"];
        for host in foreign {
            assert_eq!(code(&guard, "/", &format!("Host: {host}\r\n")), Some(421), "{host}");
        }
        assert_eq!(code(&guard, "/", ""), Some(421));
        assert!(guard.permits("127.0.0.1:1".parse().unwrap()));
        assert!(guard.permits("[::ffff:127.0.0.1]:1".parse().unwrap()));
        assert!(!guard.permits("0.0.0.0:1".parse().unwrap()));
        assert!(!guard.permits("10.0.0.1:1".parse().unwrap()));
    }

    #[test]
    fn with_a_token_only_who_shows_it_is_answered() {
        let guard = Guard::new(Token::parse(TOKEN));
        assert!(guard.permits("0.0.0.0:1".parse().unwrap()));
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
