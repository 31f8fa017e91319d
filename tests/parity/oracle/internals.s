// Lets internals.go declare functions without a body.
