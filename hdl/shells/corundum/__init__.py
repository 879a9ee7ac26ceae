"""The cards inside the application block of Corundum."""
