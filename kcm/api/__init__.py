"""Everything that touches the API server's wire: types, selectors, patches, configuration and the client.

Guarantees:
- Objects that come out of here are frozen; a change starts from a fresh copy (`Document`).
- A PUT made from an object that was read keeps every field that this code does not know.
- Failures leave the client as one of the types in `kcm.api.errors`, told apart by predicates, never by text.
"""
