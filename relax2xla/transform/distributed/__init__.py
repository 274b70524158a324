"""How tensors are spread over devices: from annotations down to what each worker runs."""
