//! Response to a request for the counter snapshot. Without the token a client learns nothing, not
//! even which paths exist.

use horolog_http::{HttpRequest, HttpResponse};

use crate::{CounterQuery, CounterSnapshot, Token, text};

/// Path of the snapshot as JSON, and as text for people.
pub(crate) const JSON_PATH: &str = "/counters";
const TEXT_PATH: &str = "/counters.txt";

/// The response to `request`, with the snapshot that `page` reads for its query.
pub fn answer(
    request: &HttpRequest<'_>,
    token: &Token,
    page: impl FnOnce(&CounterQuery) -> CounterSnapshot,
) -> HttpResponse {
    if !request.bearer.is_some_and(|presented| token.matches(presented)) {
        return HttpResponse::text(401, "the token is missing or wrong\n");
    }
    if ![JSON_PATH, TEXT_PATH].contains(&request.path) {
        return HttpResponse::text(404, format!("not found: choose {JSON_PATH} or {TEXT_PATH}\n"));
    }
    match CounterQuery::parse(request.query) {
        Err(error) => HttpResponse::text(400, format!("{error}\n")),
        Ok(query) if request.path == TEXT_PATH => HttpResponse::text(200, text(&page(&query))),
        Ok(query) => {
            HttpResponse { code: 200, kind: "application/json", body: page(&query).to_json() }
        }
    }
}
