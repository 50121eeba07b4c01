//! A request's body as events: pieces of at most 64 KB, from memory, from its file or while they arrive.
//!
//! A file is read by a thread that may wait for a disk: its answer comes as an event of the loop.

use std::io;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use server::exchange::{Body, BodyFile, BodyStream, StreamPiece};
use server::pool::FileLoader;

/// Bytes of a body in one event.
const PIECE_BYTES: usize = 64 << 10;

/// A request's body, and what of it was given.
pub(super) enum BodyReader {
    /// In memory, from an offset on.
    Memory(Vec<u8>, usize),
    File {
        file: Arc<BodyFile>,
        bytes: u64,
        offset: u64,
        piece: FilePiece,
    },
    /// While it arrives.
    Stream(Arc<BodyStream>),
    /// All was given.
    Given,
}

/// The next bytes of a file.
pub(super) enum FilePiece {
    Missing,
    Asked,
    Here(io::Result<Vec<u8>>),
}

/// What there is of a body.
pub(super) enum BodyPiece<'py> {
    /// The next piece, and whether more follows.
    Here(Bound<'py, PyBytes>, bool),
    /// It is being read.
    Awaited,
    /// The client is to be told that it may send it.
    Uninvited,
    /// All was given.
    Given,
    /// The rest will not come.
    Broken,
}

impl BodyReader {
    pub(super) fn new(body: Body, streamed: Option<&Arc<BodyStream>>) -> Self {
        if let Some(streamed) = streamed {
            return Self::Stream(Arc::clone(streamed));
        }
        match body {
            Body::Empty => Self::Memory(Vec::new(), 0),
            Body::Memory(data) => Self::Memory(data, 0),
            Body::File { file, bytes } => Self::File {
                file: Arc::new(file),
                bytes,
                offset: 0,
                piece: FilePiece::Missing,
            },
        }
    }

    /// The next piece; one that is to be read is asked of `loader`, for the request with this key.
    pub(super) fn next<'py>(
        &mut self,
        py: Python<'py>,
        key: u64,
        loader: &FileLoader,
    ) -> io::Result<BodyPiece<'py>> {
        let (piece, has_more) = match self {
            Self::Memory(data, offset) => {
                let end = data.len().min(*offset + PIECE_BYTES);
                let piece = PyBytes::new(py, &data[*offset..end]);
                *offset = end;
                (piece, end < data.len())
            }
            Self::File {
                file,
                bytes,
                offset,
                piece,
            } => match std::mem::replace(piece, FilePiece::Asked) {
                FilePiece::Here(read) => {
                    *piece = FilePiece::Missing;
                    let data = read?;
                    *offset += data.len() as u64;
                    (PyBytes::new(py, &data), *offset < *bytes)
                }
                FilePiece::Asked => return Ok(BodyPiece::Awaited),
                FilePiece::Missing => {
                    loader.read_body(key, file, *offset, *bytes);
                    return Ok(BodyPiece::Awaited);
                }
            },
            Self::Stream(stream) => match stream.take() {
                StreamPiece::Here(data, has_more) => (PyBytes::new(py, &data), has_more),
                StreamPiece::Awaited => return Ok(BodyPiece::Awaited),
                StreamPiece::Uninvited => return Ok(BodyPiece::Uninvited),
                StreamPiece::Broken => {
                    *self = Self::Given;
                    return Ok(BodyPiece::Broken);
                }
            },
            Self::Given => return Ok(BodyPiece::Given),
        };
        if !has_more {
            *self = Self::Given;
        }
        Ok(BodyPiece::Here(piece, has_more))
    }

    /// The piece that was asked for has come.
    pub(super) fn put(&mut self, read: io::Result<Vec<u8>>) {
        if let Self::File { piece, .. } = self {
            *piece = FilePiece::Here(read);
        }
    }

    pub(super) fn is_given(&self) -> bool {
        matches!(self, Self::Given)
    }
}
