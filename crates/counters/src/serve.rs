//! What is answered to a request for the page. Who does not show the token learns nothing, not even
//! what there is.

use horolog_http::{Answer, Request};

use crate::{Page, Query, Token, text};

/// Where the page stands as JSON, and as text for people.
pub(crate) const JSON_PATH: &str = "/counters";
const TEXT_PATH: &str = "/counters.txt";

/// The answer to `request`, with the page that `page` reads for what it asks.
pub fn answer(request: &Request<'_>, token: &Token, page: impl FnOnce(&Query) -> Page) -> Answer {
    if !request.bearer.is_some_and(|presented| token.is(presented)) {
        return Answer::text(401, "the token is missing or wrong\n");
    }
    if ![JSON_PATH, TEXT_PATH].contains(&request.path) {
        return Answer::text(404, format!("there are {JSON_PATH} and {TEXT_PATH}\n"));
    }
    match Query::parse(request.query) {
        Err(error) => Answer::text(400, format!("{error}\n")),
        Ok(query) if request.path == TEXT_PATH => Answer::text(200, text(&page(&query))),
        Ok(query) => Answer { code: 200, kind: "application/json", body: page(&query).to_json() },
    }
}
