//! What a response is, whichever protocol carried it.

/// A response as the application and the server meant it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    /// Names and values in order, but for those that belong to a protocol or to the moment.
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// It ended before it was complete.
    pub(super) is_cut: bool,
}

impl Response {
    /// Replaces the boundary between parts, which is drawn at random.
    pub(super) fn forget_boundary(&mut self) {
        for (_, value) in &mut self.fields {
            let Some((_, boundary)) = value.split_once("boundary=") else {
                continue;
            };
            let boundary = boundary.to_owned();
            for at in 0..self.body.len() - boundary.len() {
                if self.body[at..].starts_with(boundary.as_bytes()) {
                    self.body[at..at + boundary.len()].fill(b'-');
                }
            }
            *value = value.replace(&boundary, "");
        }
    }

    /// Checks that it is the same as another; large bodies are not shown.
    pub(super) fn assert_is(&self, expected: &Response, what: &str) {
        let shown = |response: &Response| {
            let Self {
                status,
                fields,
                body,
                is_cut,
            } = response;
            format!("{status} {fields:?} {} bytes, cut: {is_cut}", body.len())
        };
        assert!(
            self == expected,
            "{what}: {}; not {}",
            shown(self),
            shown(expected)
        );
    }

    /// The value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The response of an HTTP/1 connection that has ended behind it.
    pub(super) fn of_http1(bytes: &[u8], is_head: bool) -> Response {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(bytes)));
        let (head, rest) = bytes.split_at(end + 4);
        let head = std::str::from_utf8(&head[..end + 2]).unwrap();
        let (status_line, lines) = head.split_once("\r\n").unwrap();
        let mut response = Response {
            status: status_line[9..12].parse().unwrap(),
            fields: fields(lines),
            ..Response::default()
        };
        let length = response
            .field("content-length")
            .map(|text| text.parse().unwrap());
        if is_head || matches!(response.status, 204 | 304) {
            assert!(rest.is_empty(), "{head}");
        } else if lines.contains("Transfer-Encoding: chunked") {
            (response.body, response.is_cut) = dechunked(rest);
        } else {
            response.body = rest.to_vec();
            response.is_cut = length.is_some_and(|length: usize| length > rest.len());
        }
        response
    }
}

/// Names in lower case and values, but for those that belong to a protocol or to the moment.
fn fields(lines: &str) -> Vec<(String, String)> {
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    let fields = lines.split_terminator("\r\n").map(field);
    fields.filter(|(name, _)| lasts(name)).collect()
}

/// Whether a field belongs neither to a protocol nor to the moment.
pub(super) fn lasts(name: &str) -> bool {
    !["connection", "transfer-encoding", "date"].contains(&name)
}

/// The data of chunks, and whether the last one is missing.
fn dechunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut data = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let bytes = std::str::from_utf8(&rest[..end]).unwrap();
        let bytes = usize::from_str_radix(bytes, 16).unwrap();
        let chunk = &rest[end + 2..];
        if bytes == 0 {
            return (data, false);
        }
        data.extend_from_slice(&chunk[..bytes.min(chunk.len())]);
        rest = chunk.get(bytes + 2..).unwrap_or_default();
    }
    (data, true)
}
